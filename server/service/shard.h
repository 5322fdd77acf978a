// One shard at work: the machine that decides, the store that keeps, and the
// threads that carry its actions out.
//
// Thread-safe. Nothing here blocks on the disk but the calls that say so; the
// machine's actions run on the queues of ShardResources.

#ifndef SERVER_SERVICE_SHARD_H_
#define SERVER_SERVICE_SHARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/sync/mutex.h"
#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/shard_machine.h"
#include "server/service/push_waiters.h"
#include "server/service/round_merger.h"
#include "server/service/work_queue.h"
#include "server/store/run_store.h"

namespace atl::server {

// What all shards of a server share. Must outlive them.
struct ShardResources {
  RoundMerger& merger;      // Used on merge_queue alone.
  WorkQueue& merge_queue;   // One thread.
  WorkQueue& disk_queue;    // One thread: persists, drops, releases, reserves.
  WorkQueue& finish_queue;  // Syncs contributions.
  std::shared_ptr<ImagePool> images;  // Memory for versions.
  // Called, from any thread, when the report has changed.
  std::function<void()> on_change;
};

class Shard {
 public:
  // Starts from what `store` recovered.
  //
  // INVALID_ARGUMENT: the run's outer optimizer is not known.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(
      const ShardResources& resources, FileSystem& fs, RecordStore& records,
      const std::string& data_dir, const records::RunRecord& record);

  // Waits for nothing: the queues must be stopped before.
  ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // --- For the agent --------------------------------------------------------

  void OnPlan(const v1::ServerRunPlan& plan);
  // Tries again what failed for lack of room.
  void Tick();
  v1::ShardReport Report() const;

  // --- For the handlers -----------------------------------------------------

  RunStore& store() { return *store_; }
  PushWaiters& waiters() { return waiters_; }

  // Admits a push and binds its key: what the stream goes on with.
  //
  // As ParameterService.PushOuterGradient. Blocks on the disk for a new key.
  absl::StatusOr<std::shared_ptr<Contribution>> OpenPush(
      const v1::PushHeader& header, absl::string_view session_sha256);
  // All blocks are there, and the caller has the right to finish: does it on
  // the finish queue, then settles the waiters.
  void FinishLater(std::shared_ptr<Contribution> contribution);
  // Refuses the contribution whole and settles the waiters. Blocks. Requires:
  // its TakeRefusal or TakeFinish said true.
  void Refuse(const ContributionKey& key, const std::string& reason);

  // What PullParameters reads.
  //
  // As ParameterService.PullParameters; `range` of the request is not looked
  // at.
  struct PullSource {
    HeldVersion held;
    int64_t version = 0;
  };
  absl::StatusOr<PullSource> OpenPull(const v1::PullParametersRequest& request);

  absl::Status CheckPlace(int64_t run_epoch, int64_t placement_epoch,
                          uint64_t layout_fingerprint, int32_t shard) const;
  // Newest applied version; -1 if there is no version 0.
  int64_t version(int32_t fragment) const;
  // Claims the import of `fragment` for one stream; false if another has it.
  bool BeginImport(int32_t fragment);
  void EndImport(int32_t fragment);
  // An import has published version 0 of `fragment`: persists it. Blocks.
  absl::Status FinishImport(int32_t fragment);

  const OuterOptimizer& optimizer() const { return *optimizer_; }
  void AddReceivedBytes(int64_t bytes) { received_bytes_ += bytes; }
  void AddSentBytes(int64_t bytes) { sent_bytes_ += bytes; }

 private:
  Shard(const ShardResources& resources, std::unique_ptr<RunStore> store,
        std::unique_ptr<OuterOptimizer> optimizer, ShardShape shape);

  // Names the machine's next actions and posts them.
  void Advance();
  void Post(Action action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the machine how an action ended, and goes on.
  void Ended(const Action& action, const absl::Status& status);
  void Changed();

  void RunMakeVersion0(const Action& action);
  void RunPrepare(const Action& action);
  void RunPersist(const Action& action);
  void RunDrop(const Action& action);
  void RunReserve(const Action& action);
  void RunFinish(const std::shared_ptr<Contribution>& contribution);

  const ShardResources resources_;
  const std::unique_ptr<RunStore> store_;
  const std::unique_ptr<OuterOptimizer> optimizer_;
  const std::unique_ptr<MergeRule> rule_;
  PushWaiters waiters_;
  std::atomic<int64_t> received_bytes_{0};
  std::atomic<int64_t> sent_bytes_{0};

  mutable Mutex mutex_;
  ShardMachine machine_ ABSL_GUARDED_BY(mutex_);
  // What failed last and is tried again at the next Tick.
  bool retry_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int32_t> importing_ ABSL_GUARDED_BY(mutex_);
  std::string logged_wait_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_SHARD_H_
