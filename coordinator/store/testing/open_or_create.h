// A RocksDbStore for tests, in any directory.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {

// Opens the store in `directory`, and makes one if there are no records.
inline absl::StatusOr<std::unique_ptr<RocksDbStore>> OpenOrCreate(
    const std::string& directory, FileSystem& files = PosixFileSystem(),
    std::shared_ptr<rocksdb::FileSystem> database_files = nullptr) {
  auto opened = RocksDbStore::Open(directory, files, database_files);
  if (!absl::IsFailedPrecondition(opened.status())) return opened;
  return RocksDbStore::Create(directory, files, std::move(database_files));
}

}  // namespace atl::coordinator
