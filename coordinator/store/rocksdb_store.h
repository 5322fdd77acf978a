// A Store in a RocksDB. Thread-safe.
//
// Keys and values, format 3:
//   "format"                                 decimal kStoreFormat
//   "index"                                  decimal index of the newest batch
//   "audit//" number                         v1.AuditRecord, serialised
//   "evaluation/" run_id "/" version         v1.Evaluation, serialised
//   "log/" run_id "/" revision               storage.v1.Record, serialised
//   "round/" run_id "/" commit_seq           v1.Round, serialised
//   "snapshot/" run_id                       storage.v1.Snapshot, serialised
// Numbers are 16 hex digits, so that keys sort by them. Each value but "format"
// ends with the CRC-32C of the bytes before it, little-endian.
//
// LogDatabase says what else the directory holds, how lost batches are
// noticed, and how the store continues after a disk error.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/io/file_system.h"
#include "base/io/posix_file_system.h"
#include "base/sync/mutex.h"
#include "coordinator/store/log_database.h"
#include "coordinator/store/store.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"

namespace atl::coordinator {

class RangeCompactor;

class RocksDbStore : public Store {
 public:
  // Opens the store in `directory`, and never makes one. `files` holds the mark
  // and must outlive the store; `database_files` holds RocksDB's files, null:
  // the machine's.
  //
  // FAILED_PRECONDITION: the directory has no log (log_directory.h has the
  // text), another process has the store open, the format is another, or the
  // directory is a parameter server's.
  // DATA_LOSS: the store cannot be read at all. If it can, but lacks synced
  // batches, it opens and `damage` says so.
  // RESOURCE_EXHAUSTED, UNAVAILABLE: the disk refuses.
  static absl::StatusOr<std::unique_ptr<RocksDbStore>> Open(
      const std::string& directory, FileSystem& files = PosixFileSystem(),
      std::shared_ptr<rocksdb::FileSystem> database_files = nullptr);

  // Makes a store without records in `directory`, and the directory if needed.
  // Continues where an earlier call was interrupted.
  //
  // ALREADY_EXISTS: the store has records.
  // FAILED_PRECONDITION: the directory holds other files, or as Open.
  // Others: as Open.
  static absl::StatusOr<std::unique_ptr<RocksDbStore>> Create(
      const std::string& directory, FileSystem& files = PosixFileSystem(),
      std::shared_ptr<rocksdb::FileSystem> database_files = nullptr);

  // As Open, but changes nothing, also while another process has the store
  // open. Append must not be called.
  static absl::StatusOr<std::unique_ptr<RocksDbStore>> OpenToRead(
      const std::string& directory, FileSystem& files = PosixFileSystem());

  ~RocksDbStore() override;

  // The next batch gets the number `index` + 1; the numbers between are never
  // used. Requires: greater than index(). After an error the store must be
  // opened again. Errors as Append.
  absl::Status JumpTo(int64_t index);

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
  int64_t index() const override;
  absl::Status damage() const override;

 private:
  RocksDbStore(std::string directory, std::unique_ptr<LogDatabase> database);

  static absl::StatusOr<std::unique_ptr<RocksDbStore>> OpenIn(
      LogDatabase::Mode mode, const std::string& directory, FileSystem& files,
      std::shared_ptr<rocksdb::FileSystem> database_files);
  static absl::StatusOr<std::unique_ptr<RocksDbStore>> OpenExisting(
      LogDatabase::Mode mode, const std::string& directory, FileSystem& files,
      std::shared_ptr<rocksdb::FileSystem> database_files);

  // True also if the store is damaged.
  absl::StatusOr<bool> HasLog() const;

  // OUT_OF_RANGE: the record after `after_revision` was deleted.
  absl::Status CheckKept(const std::string& run_id,
                         int64_t after_revision) const;
  absl::StatusOr<int64_t> NewestRevision(rocksdb::DB& db,
                                         const std::string& run_id) const;

  const std::string directory_;
  const std::unique_ptr<LogDatabase> database_;
  const std::unique_ptr<RangeCompactor> compactor_;  // Uses database_.

  Mutex mutex_;
  // Cache of the newest revision of each log.
  std::map<std::string, int64_t> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
