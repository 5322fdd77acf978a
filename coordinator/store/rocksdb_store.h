// A Store in a RocksDB. Thread-safe.
//
// Keys and values, format 2:
//   "format"                                 decimal kStoreFormat
//   "evaluation/" run_id "/" version         v1.Evaluation, serialised
//   "log/" run_id "/" revision               storage.v1.Record, serialised
//   "round/" run_id "/" commit_seq           v1.Round, serialised
//   "snapshot/" run_id                       storage.v1.Snapshot, serialised
// Numbers are 16 hex digits, so that keys sort by them. Each value but "format"
// ends with the CRC-32C of the bytes before it, little-endian.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "coordinator/store/store.h"

namespace rocksdb {
class DB;
}

namespace atl::coordinator {

class RocksDbStore : public Store {
 public:
  // Opens the store in `directory` and makes the directory if needed.
  //
  // FAILED_PRECONDITION: another process has the store open, the format is
  // another, or the directory is a parameter server's.
  // DATA_LOSS: the store cannot be read.
  // RESOURCE_EXHAUSTED, UNAVAILABLE: the disk refuses.
  static absl::StatusOr<std::unique_ptr<RocksDbStore>> Open(
      const std::string& directory);

  ~RocksDbStore() override;

  absl::Status Append(const Batch& batch) override;
  absl::StatusOr<std::optional<storage::v1::Snapshot>> ReadSnapshot(
      const std::string& run_id) const override;
  absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(
      const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
      int64_t bytes_max) const override;
  absl::StatusOr<std::vector<std::string>> ListLogs() const override;

 private:
  RocksDbStore(std::string directory, std::unique_ptr<rocksdb::DB> db);

  absl::Status CheckFormat();
  // OUT_OF_RANGE: the record after `after_revision` was deleted.
  absl::Status CheckKept(const std::string& run_id,
                         int64_t after_revision) const;
  absl::StatusOr<int64_t> NewestRevision(const std::string& run_id) const;

  const std::string directory_;
  const std::unique_ptr<rocksdb::DB> db_;

  Mutex mutex_;
  // Cache of the newest revision of each log.
  std::map<std::string, int64_t> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
