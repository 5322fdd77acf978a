// Uploads the checkpoints of a server's shards to a mirror, one after the
// other, in one thread of the lowest priority. Rounds never wait for it.
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mirror/mirror_names.h"
#include "base/object_store/object_store.h"
#include "base/object_store/retrier.h"
#include "base/object_store/throttle.h"
#include "base/sync/mutex.h"
#include "server/mirror/part_upload.h"

namespace atl::server {

// A shard's part of a durable checkpoint.
struct MirrorJob {
  mirror::CheckpointPlace place;
  int32_t shard = 0;
  std::vector<PartSource> parts;  // By fragment; may be empty.
  // Called by the mirror's thread: the first once, when all parts are in the
  // mirror; the second after each attempt that fails. They must not call Drop.
  std::function<void(const std::vector<MirroredPart>&)> on_done;
  std::function<void(const absl::Status&)> on_failed;  // May be empty.
};

struct CheckpointMirrorOptions {
  // Opens the mirror for one job. Its waits must be `waiting`, which ends when
  // the job does.
  std::function<absl::StatusOr<std::unique_ptr<ObjectStore>>(
      const Waiting& waiting)>
      open;
  int64_t bytes_per_second = 0;  // The rate of uploads; 0: no bound.
  // From a failure to the next attempt of any job.
  absl::Duration retry_delay = absl::Minutes(1);
  Waiting waiting;  // Without `cancelled`.
};

class CheckpointMirror {
 public:
  explicit CheckpointMirror(CheckpointMirrorOptions options);
  // Ends the upload that runs, and forgets the jobs that wait.
  ~CheckpointMirror();

  // A job that fails is tried again, from the first part that is missing, until
  // a newer one of its shard comes. A newer one replaces an older one that
  // waits or has failed: at most one job of a shard waits.
  void Add(MirrorJob job);

  // Forgets the jobs of a shard. False while an attempt has not ended yet: then
  // call it again before what the jobs use is destroyed. Never waits.
  bool Drop(const std::string& run_uid, int32_t shard);

 private:
  using Key = std::pair<std::string, int32_t>;  // run_uid and shard.

  static Key GetKey(const MirrorJob& job) {
    return {job.place.run_uid, job.shard};
  }
  void Run();
  absl::StatusOr<std::vector<MirroredPart>> Upload(const MirrorJob& job);
  void Forget(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWaiting(const Key& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CheckpointMirrorOptions options_;
  std::atomic<bool> is_cancelled_{false};  // The upload that runs.
  Waiting waiting_;                        // Ends when is_cancelled_ is set.
  Throttle throttle_;                      // The thread's.

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<MirrorJob> jobs_ ABSL_GUARDED_BY(mutex_);
  std::optional<Key> running_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace atl::server
