// One shard at work: the machine that decides, the store that keeps, and the
// threads that carry its actions out.
//
// Thread-safe. Nothing here blocks on the disk but the calls that say so; the
// machine's actions run on the queues of ShardResources.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
#include "server/core/blocked_reasons.h"
#include "server/core/shard_machine.h"
#include "server/live_merge/live_rounds.h"
#include "server/merge/round_merger.h"
#include "server/merge/work_queue.h"
#include "server/store/run_store.h"
#include "server/waiters/push_waiters.h"
#include "server/waiters/version_readers.h"

namespace atl::server {

// What all shards of a server share. Must outlive them.
struct ShardResources {
  RoundMerger& merger;      // Used on merge_queue alone.
  WorkQueue& merge_queue;   // One thread.
  WorkQueue& disk_queue;    // One thread: persists, drops, releases, reserves.
  WorkQueue& finish_queue;  // Syncs contributions.
  WorkQueue& low_queue;     // One thread of low priority: manifests.
  std::shared_ptr<ImagePool> images;  // Memory for versions.
  ReceiveBudget& held;                // And for what waits to be merged.
  // Called, from any thread, when the report has changed.
  std::function<void()> on_change;
};

class Shard : public LiveMergeHost {
 public:
  // Starts from what `store` recovered.
  //
  // INVALID_ARGUMENT: the run's outer optimizer is not known.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(
      const ShardResources& resources, FileSystem& fs, RecordStore& records,
      const std::string& data_dir, const records::RunRecord& record);

  // Waits for nothing: the queues must be stopped before.
  ~Shard() override = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // --- For the agent --------------------------------------------------------

  void OnPlan(const v1::ServerRunPlan& plan);
  // The newest plan does not have the run.
  void OnUnplanned();
  // Tries again what failed for lack of room.
  void Tick();
  v1::ShardReport Report() const;
  // True once it has stopped, until the server starts again.
  bool has_stopped() const;

  // --- For the handlers -----------------------------------------------------

  RunStore& store() { return *store_; }
  PushWaiters& waiters() { return waiters_; }

  // Admits a push and binds its key: what the stream goes on with.
  //
  // As ParameterService.PushOuterGradient. Blocks on the disk for a new key.
  absl::StatusOr<std::shared_ptr<Contribution>> OpenPush(
      const v1::PushHeader& header, absl::string_view session_sha256);
  // Whether a push of `slot` may go on, by the newest plan; to be asked once
  // its stream is among the waiters, who are told when that changes.
  //
  // FAILED_PRECONDITION, NOT_A_MEMBER: it is no member any more.
  absl::Status CheckMember(int32_t slot) const;
  // Admits an import: what its stream goes on with; null if version 0 is here
  // and is the same.
  //
  // As ParameterService.ImportParameters. Blocks on the disk the first time.
  absl::StatusOr<std::shared_ptr<Contribution>> OpenImport(
      const v1::ImportHeader& header);
  // As RunStore::WriteBlocks; but of an error what a stream is told.
  absl::StatusOr<bool> WriteBlocks(Contribution& contribution,
                                   IndexRange blocks,
                                   absl::Span<const absl::string_view> pieces,
                                   absl::Span<const BlockFact> facts);
  // All blocks are there, and the caller has the right to finish: does it on
  // the finish queue, then settles the waiters.
  void FinishLater(std::shared_ptr<Contribution> contribution) override;
  // Its turn comes with PushWaiter::OnLiveMerge.
  //
  // ABORTED: the contribution is decided, or of a round that is.
  absl::StatusOr<LivePlace> FindLiveMerge(
      const v1::ContributionInfo& info) const override;
  // True if a COMMIT or the plan has decided it: its streams are settled.
  bool IsDecided(const ContributionKey& key) const override;
  // Refuses the contribution whole and settles the waiters; an import is
  // forgotten, so that a right one may come. Blocks. Requires: its TakeRefusal
  // or TakeFinish said true.
  void RefuseWhole(const Contribution& contribution,
                   const absl::Status& reason);

  // What PullParameters reads.
  //
  // As ParameterService.PullParameters; `range` of the request is not looked
  // at. The reader is displaced if too many released versions are read on.
  struct PullSource {
    HeldVersion held;
    VersionReaders::Reading reading;  // For as long as it is held.
    int64_t version = 0;
    v1::PullContent content = v1::PULL_CONTENT_PARAMETERS;
    Digest128 digest;  // Of what the caller has in the end.
    int array = 0;     // Of the version: what is read, but for CHAIN.
    // CHAIN: D of from_version + 1 to version.
    int64_t from_version = 0;
    std::vector<std::shared_ptr<DeltaFile>> chain;
    bool is_state = false;  // `array` is the optimizer's, which is copied.
    // A merged contribution, in place of a version.
    std::shared_ptr<Contribution> kept;
    Digest128 replica_digest;  // Of the version that it was merged into.
  };
  absl::StatusOr<PullSource> OpenPull(const v1::PullParametersRequest& request,
                                      const Reader& reader);
  // What PullKept reads: `held` and `array`, or `kept`.
  //
  // As ParameterService.PullKept; `range` of the request is not looked at.
  absl::StatusOr<PullSource> OpenKept(const v1::PullKeptRequest& request,
                                      const Reader& reader);

  // True once after something here found the disk full.
  bool TakeNoRoom() { return no_room_.exchange(false); }
  // The disk is full, whoever found it: what is kept for pins makes room.
  void GiveUpKept();

  // A reader of a version met damage: checkpoints that name it are broken, and
  // without the newest the shard stops. What the reader's caller is told.
  absl::Status OnDamagedVersion(int32_t fragment, int64_t version,
                                const absl::Status& damage);

  // A reader of D of a version met damage: it is not held any more.
  void OnDamagedDelta(int32_t fragment, int64_t version,
                      const absl::Status& damage);

  void AddReceivedBytes(int64_t bytes) { received_bytes_ += bytes; }
  void AddSentBytes(int64_t bytes) { sent_bytes_ += bytes; }

 private:
  Shard(const ShardResources& resources, std::unique_ptr<RunStore> store,
        std::unique_ptr<OuterOptimizer> optimizer, ShardShape shape);

  // The error of a read of a contribution that is not kept: `given_up` says
  // why, and is empty if nobody wanted it.
  absl::Status NotKept(const ContributionKey& key,
                       const std::string& given_up) const;

  // Names the machine's next actions and posts them.
  void Advance();
  void AdvanceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Post(ShardAction action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteBlockedReason(const BlockedReasons::Cause& cause,
                         absl::string_view name, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The disk did not do what a contribution needs: what its streams are told.
  // The operator is told too; damage stops the shard, all else may pass.
  absl::Status OnLogError(const v1::ContributionInfo& info,
                          const absl::Status& error);
  // Work that nobody waits for could not be done: damage stops the shard.
  void OnQuietError(const ShardAction& action, const absl::Status& error);
  // Tells the machine how an action ended, and goes on.
  void Ended(const ShardAction& action, const absl::Status& status);
  void Changed();
  // What a pull gives of `source`'s version.
  absl::Status ChooseContent(const v1::PullParametersRequest& request,
                             PullSource& source);

  void RunMakeVersion0(const ShardAction& action);
  // Frees imports that are version 0 now.
  void DropImports();
  void RunMeasure(const ShardAction& action);
  void RunLiveMerge(const ShardAction& action);
  void RunPrepare(const ShardAction& action);
  // Nobody may hear of a version that is not recorded as prepared.
  void GiveUpPrepared(int32_t fragment, int64_t version);
  // A merge of `seal` met damage, `damage`: contributions that are damaged are
  // lost, and the merge is tried again; if none is, the damage stands.
  absl::Status LoseDamaged(const v1::Seal& seal, const absl::Status& damage);
  void RunPersist(const ShardAction& action);
  void RunDrop(const ShardAction& action);
  void RunReserve(const ShardAction& action);
  void RunWriteManifest(const ShardAction& action);
  void RunDropManifest(const ShardAction& action);
  void RunDropKept(const ShardAction& action);
  void RunFinish(const std::shared_ptr<Contribution>& contribution);
  // Why a contribution that is whole cannot be taken.
  absl::Status CheckWhole(const Contribution& contribution) const;

  const ShardResources resources_;
  const std::unique_ptr<RunStore> store_;
  const std::unique_ptr<OuterOptimizer> optimizer_;
  const std::unique_ptr<MergeRule> rule_;
  PushWaiters waiters_;
  const std::unique_ptr<LiveRounds> live_;  // Null at other durabilities.
  VersionReaders readers_;
  std::atomic<int64_t> received_bytes_{0};
  std::atomic<int64_t> sent_bytes_{0};
  std::atomic<bool> no_room_{false};

  mutable Mutex mutex_;
  ShardMachine machine_ ABSL_GUARDED_BY(mutex_);
  // Live merges that are committed: freed once the lock is released.
  std::vector<std::shared_ptr<const void>> live_done_ ABSL_GUARDED_BY(mutex_);
  // Streams to be told once the lock is released.
  std::vector<std::pair<ContributionKey, absl::Status>> to_settle_
      ABSL_GUARDED_BY(mutex_);
  // An action failed: the next Tick tries again.
  bool retry_ ABSL_GUARDED_BY(mutex_) = false;
  BlockedReasons blocked_reasons_ ABSL_GUARDED_BY(mutex_);
  std::string logged_wait_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::string> logged_reserves_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
