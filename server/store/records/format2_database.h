// Reads the records of a data directory of format 2: one RocksDB database had
// the records of all runs.

#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace rocksdb {
class DB;
}  // namespace rocksdb

namespace atl::server {

// Thread-compatible. While it lives, no other process opens the database.
class Format2Database {
 public:
  // FAILED_PRECONDITION: another process has it open. DATA_LOSS: it is damaged,
  // or of another format. Other errors as RocksDB's.
  static absl::StatusOr<std::unique_ptr<Format2Database>> Open(
      const std::string& directory);
  ~Format2Database();

  // All records, by name.
  const std::map<std::string, std::string>& records() const {
    return records_;
  }

 private:
  explicit Format2Database(std::unique_ptr<rocksdb::DB> db);

  std::unique_ptr<rocksdb::DB> db_;
  std::map<std::string, std::string> records_;
};

}  // namespace atl::server
