// A server's data directory: its owner, the runs in it, and the newest position
// of the coordinator's log that the server has seen.
//
//   DATA_DIR/identity                        IdentityFile
//   DATA_DIR/lock                            locked while a process uses it
//   DATA_DIR/runs/RUN_ID.RUN_UID/shard-N/    one shard (server/store/DESIGN.md)
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/sync/mutex.h"
#include "server/directory/identity_file.h"
#include "server/store/records/log_record_store.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

// A shard in the directory.
struct FoundShard {
  std::string run_id;
  std::string run_uid;  // In the directory's name.
  int32_t shard = 0;
  // OK, or why it cannot be opened. Then `record` and `records` are not set.
  absl::Status status;
  records::RunRecord record;
  // If its damage() is not OK, only older records are there.
  std::unique_ptr<LogRecordStore> records;
};

class ServerDirectory {
 public:
  // Opens the directory of `server_id`; makes it if it does not exist. The
  // incarnation, one more than at the last start, is durable. `fs` must outlive
  // it.
  //
  // FAILED_PRECONDITION: another process uses it, or it belongs to another
  // server. DATA_LOSS: the identity is damaged, or of another format.
  static absl::StatusOr<std::unique_ptr<ServerDirectory>> Open(
      FileSystem& fs, const std::string& data_dir,
      const std::string& server_id);

  const std::string& data_dir() const { return data_dir_; }
  // Number of starts.
  int64_t incarnation() const { return incarnation_; }
  // Random, made with the directory.
  const std::string& directory_id() const { return directory_id_; }

  // Takes in a position, if it is newer, and an epoch, if it is greater. A
  // position of another cluster is not newer.
  void NoteLog(const v1::LogPosition& log, int64_t coordinator_epoch);
  // The newest position noted; not set before the first.
  v1::LogPosition log_seen() const;
  int64_t coordinator_epoch() const;
  // Makes what was noted durable. Blocks on the disk if that has changed.
  absl::Status PersistLog();

  // Opens the records of all shards here. Directories that no server made, or
  // whose shard was never complete, are left alone.
  absl::StatusOr<std::vector<FoundShard>> OpenShards();
  // Makes the directory and the record of a new shard, durably, or opens the
  // one that is there.
  //
  // DATA_LOSS: the records that are there are damaged, or of another run or
  // shard.
  absl::StatusOr<FoundShard> CreateShard(const v1::Run& run, int32_t shard,
                                         int32_t shard_count);

 private:
  ServerDirectory(FileSystem& fs, std::string data_dir,
                  std::unique_ptr<FileLock> lock,
                  std::unique_ptr<IdentityFile> identity);

  // Appends the shards of one run's directory.
  void OpenRun(const std::string& name, std::vector<FoundShard>& shards);
  // False if the shard is not complete.
  bool OpenShard(const std::string& directory, FoundShard& found);

  FileSystem& fs_;
  const std::string data_dir_;
  const std::unique_ptr<FileLock> lock_;
  const std::unique_ptr<IdentityFile> identity_;
  const int64_t incarnation_;
  const std::string directory_id_;

  Mutex persist_mutex_;  // Guards identity_. Taken before mutex_.
  mutable Mutex mutex_;
  v1::LogPosition log_ ABSL_GUARDED_BY(mutex_);
  int64_t coordinator_epoch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
