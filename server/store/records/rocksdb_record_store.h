// Records in RocksDB.
//
// Thread-safe. One process at a time holds the directory (RocksDB's LOCK).

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/records/record_store.h"

namespace rocksdb {
class DB;
}  // namespace rocksdb

namespace atl::server {

class RocksDbRecordStore final : public RecordStore {
 public:
  // Opens the database in `directory`; creates it if there is none.
  //
  // FAILED_PRECONDITION: another process holds it. DATA_LOSS: it is damaged, or
  // of a format that this program does not read.
  static absl::StatusOr<std::unique_ptr<RocksDbRecordStore>> Open(
      const std::string& directory);

  ~RocksDbRecordStore() override;

  absl::Status Write(const RecordBatch& batch, Sync sync) override;
  absl::StatusOr<std::string> Get(absl::string_view name) const override;
  absl::StatusOr<std::vector<Record>> Scan(
      absl::string_view prefix) const override;

 private:
  explicit RocksDbRecordStore(std::unique_ptr<rocksdb::DB> db);

  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace atl::server
