// Completes runs' checkpoints in the mirror, in a thread of its own: makes the
// cluster the owner of its runs there, writes the manifests that the core says
// are due, and removes checkpoints that runs no longer keep. Writes the cluster
// object each time its content has changed. The event loop never waits for the
// mirror.
//
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "atoll/v1/plan.pb.h"
#include "base/mirror/open_mirror.h"
#include "base/object_store/object_store.h"
#include "base/object_store/retrier.h"
#include "base/sync/mutex.h"
#include "coordinator/core/run_event.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/service/event_loop.h"

namespace atl::coordinator {

class MirrorThread {
 public:
  struct Options {
    mirror::MirrorOpener open;
    // From a failure to the next attempt of any run, or of the cluster object.
    absl::Duration retry_delay = absl::Minutes(1);
    // Shortest time between two cluster objects: what changes meanwhile is
    // written once.
    absl::Duration cluster_period = absl::Seconds(1);
    Waiting waiting;  // Without `cancelled`.
  };

  explicit MirrorThread(Options options);
  ~MirrorThread() { Stop(); }

  // Begins to ask the loop for work, which must outlive Stop.
  void Start(EventLoop& loop);
  // The core has more work. Never blocks.
  void Notify();
  // Ends an attempt that runs. Idempotent.
  void Stop();

 private:
  void Run(EventLoop& loop);
  // Takes the runs whose epoch is new, and tells the core which have another
  // owner. Errors: the mirror's, which the core knows then.
  absl::Status TakeRuns(EventLoop& loop);
  absl::StatusOr<std::vector<MirrorWork>> Ask(EventLoop& loop);
  // Writes the cluster object if it is due; logs another kind of failure.
  void UpdateCluster(EventLoop& loop);
  // OK also if its content has not changed, or the coordinator only reads.
  absl::Status WriteClusterIfChanged(EventLoop& loop);
  absl::Status WriteCluster(const storage::v1::ClusterObject& object);
  // Tells the core, durably, how an attempt ended. `pin`: the checkpoint, or
  // empty.
  absl::Status Tell(EventLoop& loop, const storage::v1::RunOwner& own,
                    const v1::Pin& pin, const absl::Status& result);
  // Sets the owner's since_run_epoch. FAILED_PRECONDITION: the run has another
  // owner, whose run_epoch is in other_epoch_ then.
  absl::Status Own(ObjectStore& store, storage::v1::RunOwner& own);
  absl::Status OwnOne(storage::v1::RunOwner& own);
  absl::Status Complete(const MirrorWork& work);
  // Proves once that no write of this store replaces a manifest.
  absl::Status CheckOnce(ObjectStore& store);
  // Waits for Notify, Stop or the cluster object's time; false: for Stop.
  bool AwaitNotice();
  // Waits for Stop, at most retry_delay.
  void AwaitRetry();

  const Options options_;
  std::atomic<bool> is_stopping_{false};
  Waiting waiting_;

  // --- The thread's ----------------------------------------------------------
  bool is_checked_ = false;  // CheckOnce has succeeded.
  // run_epoch and coordinator_epoch of each run, by run_uid, whose owner the core
  // knows.
  std::map<std::string, std::pair<int64_t, int64_t>> owned_epochs_;
  std::set<std::string> untaken_;  // Runs that the core was told an error of.
  // The other owner's run_epoch in the newest attempt; 0: no other owner.
  int64_t other_epoch_ = 0;
  storage::v1::ClusterObject written_;  // The newest one; empty: none was.
  bool is_cluster_due_ = false;         // Its content may have changed.
  // The earliest time of the next attempt to write it.
  absl::Time cluster_time_ = absl::InfinitePast();
  // The result of the newest attempt.
  absl::StatusCode cluster_failure_ = absl::StatusCode::kOk;

  Mutex mutex_;
  CondVar changed_;
  bool has_notice_ ABSL_GUARDED_BY(mutex_) = true;
  std::thread thread_;
};

}  // namespace atl::coordinator
