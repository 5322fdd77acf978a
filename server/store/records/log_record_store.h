// Records in a log file of their own directory (server/store/DESIGN.md,
// Records). All records are in memory too.
//
// Thread-safe. A directory has one LogRecordStore at a time.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"
#include "base/sync/mutex.h"
#include "server/store/records/record_map.h"
#include "server/store/records/record_store.h"
#include "server/store/records/slot_file.h"

namespace atl::server {

class LogRecordStore final : public RecordStore {
 public:
  // Opens the store in `directory`; makes both if there is none. What it
  // returns is durable, apart from the names of `directory` and its parents.
  // `fs` must outlive it.
  //
  // DATA_LOSS: records that were synced are damaged or gone; the message names
  // the file and the records. Nothing on the disk has changed. Other errors as
  // the file system's.
  static absl::StatusOr<std::unique_ptr<LogRecordStore>> Open(
      FileSystem& fs, const std::string& directory);
  // Opens a damaged store with the records from before the damage, and changes
  // nothing on the disk. damage() says what is missing.
  static absl::StatusOr<std::unique_ptr<LogRecordStore>> OpenDamaged(
      FileSystem& fs, const std::string& directory);

  // Sync::kMachine: threads that write at the same time share one sync.
  absl::Status Write(const RecordBatch& batch, Sync sync) override;
  absl::StatusOr<std::string> Get(absl::string_view name) const override;
  absl::StatusOr<std::vector<Record>> Scan(
      absl::string_view prefix) const override;
  absl::Status damage() const override { return damage_; }

 private:
  struct Found;

  LogRecordStore(FileSystem& fs, std::string directory, absl::Status damage);

  // Reads the newest log of `directory` and changes nothing.
  static absl::StatusOr<Found> Load(FileSystem& fs,
                                    const std::string& directory);

  std::string LogPath(int64_t number) const;
  void ApplyFrames(const Found& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Goes on with the log that was found.
  absl::Status Resume(const Found& found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes log `number` with a snapshot, durably, and goes on with it. After an
  // error the present log stays in use, or failure_ is set.
  absl::Status StartLog(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the snapshot to an open file; returns its bytes.
  absl::StatusOr<int64_t> WriteSnapshot(RandomAccessFile& file,
                                        uint64_t file_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Append(const std::string& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reserves the file's first `size` bytes and some more.
  absl::Status MakeRoom(int64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns when frame `seq` is synced. Waits for others that sync.
  absl::Status SyncTo(uint64_t seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteMark() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CompactIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem& fs_;
  const std::string directory_;
  const absl::Status damage_;

  mutable Mutex mutex_;
  CondVar changed_;
  RecordMap records_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RandomAccessFile> file_ ABSL_GUARDED_BY(mutex_);
  int64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t file_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;       // Bytes of whole frames.
  int64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;  // Bytes with disk space.
  uint64_t last_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t synced_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  // A thread syncs file_ without the lock. file_ stays.
  bool is_syncing_ ABSL_GUARDED_BY(mutex_) = false;
  // Size at which a compaction that failed is tried again.
  int64_t compact_again_at_ ABSL_GUARDED_BY(mutex_) = 0;
  // The disk failed a write or a sync: no later write can be trusted.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SlotFile> mark_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
