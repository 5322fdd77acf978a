// The RocksDB under the coordinator's log. Notices when it has lost synced
// batches, and opens itself again after a disk error. Thread-safe.
//
// Each batch holds its index: batches are counted from 1. Besides RocksDB's
// files the directory has:
//   "lock"   held with flock while the directory is open
//   "mark"   the index of the newest synced batch (log_mark.h)
// An open reads the index without writing. If batches up to the mark are
// missing, the database stays open for reading only and `damage` says so.
// Otherwise a torn end of a log or of a MANIFEST is dropped: no caller was told
// that this write succeeded.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"
#include "base/sync/mutex.h"
#include "coordinator/store/log_mark.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/write_batch.h"

namespace atl::coordinator {

class LogDatabase {
 public:
  enum class Mode {
    kOpen,    // Makes nothing: the database must be there.
    kCreate,  // Makes the directory and the database if they are missing.
    kRead,    // Changes nothing, and needs no lock: another process may write.
  };

  // Opens the database in `directory`. `files` holds the mark, `database_files`
  // the rest; `files` must outlive the database.
  //
  // NOT_FOUND: the directory has no database, except in kCreate.
  // FAILED_PRECONDITION: another process has it open, or it has a format that
  // this program does not read.
  // DATA_LOSS: it cannot be opened, not even for reading.
  // RESOURCE_EXHAUSTED: the disk is full. UNAVAILABLE: the disk refuses.
  static absl::StatusOr<std::unique_ptr<LogDatabase>> Open(
      const std::string& directory, FileSystem& files,
      std::shared_ptr<rocksdb::FileSystem> database_files, Mode mode);

  ~LogDatabase();

  // The database, opened again if an error had closed it. Do not keep the
  // pointer: the database opens again only after all old pointers are gone.
  //
  // UNAVAILABLE, RESOURCE_EXHAUSTED: it cannot be opened now; call again.
  // DATA_LOSS: what the disk holds cannot be opened.
  absl::StatusOr<std::shared_ptr<rocksdb::DB>> Get();

  // The same for a writer, not in kRead. Only one thread at a time may write.
  //
  // DATA_LOSS: also `damage`.
  // UNAVAILABLE: also if the database had to be opened again and holds other
  // batches than before.
  absl::StatusOr<std::shared_ptr<rocksdb::DB>> GetForWrite();

  // Adds the next index to `batch`, writes it to `db` (of GetForWrite) and
  // syncs it, then the mark.
  //
  // RESOURCE_EXHAUSTED: the disk is full. UNAVAILABLE: the disk refuses.
  // DATA_LOSS: RocksDB has found damage. After any of them `batch` may be in
  // the database: `index` and Get tell once Get succeeds.
  absl::Status Write(rocksdb::DB& db, rocksdb::WriteBatch& batch);

  // Makes `index`, which is greater than index(), the index of the newest batch,
  // durably. The numbers between are never used. After an error or a crash
  // either index holds.
  //
  // Errors as those of GetForWrite and Write.
  absl::Status JumpTo(int64_t index);

  // As Store.
  int64_t index() const;
  absl::Status damage() const;

  // The database as it is, for work that can be left undone; may be null.
  std::shared_ptr<rocksdb::DB> Peek() const;

  // Converts an error of RocksDB and names the directory. Only ENOSPC and
  // EDQUOT are RESOURCE_EXHAUSTED.
  absl::Status ToStatus(const rocksdb::Status& status) const;

 private:
  struct Handle;  // A database, and the objects that must outlive it.
  struct Found;   // The content of the disk.

  LogDatabase(std::string directory, int lock_fd, FileSystem& files,
              std::shared_ptr<rocksdb::FileSystem> database_files);

  absl::Status OpenHandle(Mode mode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<Found> Look(rocksdb::Env& env);
  absl::Status CheckFormat(const Found& found) const;
  // DATA_LOSS: `found` lacks synced batches.
  absl::Status CompareWithMark(const Found& found) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status WriteMark(int64_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<std::shared_ptr<rocksdb::DB>> Reopen()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void Close();
  void SetDamage(absl::Status damage);
  absl::StatusOr<std::unique_ptr<rocksdb::Env>> MakeEnv() const;
  absl::Status OpenError(const rocksdb::Status& status) const;

  const std::string directory_;
  const int lock_fd_;  // -1: kRead.
  FileSystem& files_;
  const std::shared_ptr<rocksdb::FileSystem> database_files_;

  // Held while writing and opening. Taken before mutex_.
  Mutex write_mutex_;
  std::unique_ptr<LogMark> mark_ ABSL_GUARDED_BY(write_mutex_);
  // RocksDB's log when it refused a batch because the disk was full; -1 if
  // unknown. It may end with a part of that batch.
  std::optional<int64_t> failed_wal_ ABSL_GUARDED_BY(write_mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<rocksdb::DB> closed_ ABSL_GUARDED_BY(mutex_);
  int64_t index_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
