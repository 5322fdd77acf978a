// One shard at run time: the machine that decides, the store that keeps, and
// the queues on which the machine's actions run.
//
// Thread-safe. Calls do not block on the disk unless their comment says so.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/object_store/object_store.h"
#include "base/sync/mutex.h"
#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/blocked_reasons.h"
#include "server/core/shard_machine.h"
#include "server/live_merge/live_rounds.h"
#include "server/merge/round_merger.h"
#include "server/merge/work_queue.h"
#include "server/metrics/server_metrics.h"
#include "server/mirror/checkpoint_mirror.h"
#include "server/store/run_store.h"
#include "server/waiters/push_waiters.h"
#include "server/waiters/version_readers.h"

namespace atl::server {

// Shared by all shards of a server. Must outlive them.
struct ShardResources {
  RoundMerger& merger;      // Used on merge_queue only.
  WorkQueue& merge_queue;   // One thread.
  WorkQueue& disk_queue;    // One thread: persists, drops, releases, reserves.
  WorkQueue& finish_queue;  // Syncs contributions.
  WorkQueue& low_queue;     // One thread of low priority: manifests.
  std::shared_ptr<ImagePool> images;  // Memory for versions.
  ReceiveBudget& held;  // Memory for chunks that wait for a live merge.
  ServerMetrics& metrics;
  // Called from any thread when the report has changed.
  std::function<void()> on_change;
  // The newest position of the coordinator's log that the server has seen.
  std::function<v1::LogPosition()> log_seen;
  // Makes it durable: before what it decided is deleted for good, and before a
  // checkpoint is reported.
  std::function<absl::Status()> persist_log;
  CheckpointMirror* mirror = nullptr;  // Null: the server has no --mirror.
};

// NOT_FOUND, SHARD_NOT_HERE.
absl::Status ShardNotHere(absl::string_view run_id);

// Streams and actions hold the shard. After Close() its owner must wait until
// they have let go of it.
class Shard : public std::enable_shared_from_this<Shard> {
 public:
  // Opens the shard's store and starts from what it recovered. Blocks on the
  // disk. If `records` or the newest version is damaged, the shard has stopped:
  // only its committed versions can be pulled, and it reports its checkpoints.
  // So does a shard with a `fault`, because of which the restore that begins
  // `failed_run_epoch` has failed.
  //
  // INVALID_ARGUMENT: as CheckKnownSpec, or a value of the run's outer
  // optimizer is wrong.
  // Else as RunStore::Open and LiveMerger::MakeAgain.
  static absl::StatusOr<std::shared_ptr<Shard>> Create(
      const ShardResources& resources, FileSystem& fs, RecordStore& records,
      const std::string& data_dir, const records::RunRecord& record,
      const absl::Status& fault = absl::OkStatus(),
      int64_t failed_run_epoch = 0);

  // As RunStore::Rollback, for `plan`, which begins with a restore. Blocks on
  // the disk. Requires: no Shard has the directory open.
  static absl::Status Rollback(FileSystem& fs, RecordStore& records,
                               const std::string& data_dir,
                               const records::RunRecord& record,
                               const v1::ServerRunPlan& plan,
                               const v1::LogPosition& log);

  // As DownloadVersions, for the same plan: before Rollback is tried again.
  // Blocks on the network and the disk.
  static absl::Status Download(ObjectStore& mirror, FileSystem& fs,
                               RecordStore& records,
                               const std::string& data_dir,
                               const records::RunRecord& record,
                               const v1::ServerRunPlan& plan,
                               std::function<bool()> is_cancelled);

  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // --- For the agent --------------------------------------------------------

  // As ShardMachine::NeedsRestore. The shard ignores such a plan.
  bool NeedsRestore(const v1::ServerRunPlan& plan) const;
  void OnPlan(const v1::ServerRunPlan& plan);
  // The newest plan does not contain the run.
  void OnUnplanned();
  // Tries failed actions again.
  void Tick();
  // The run is deleted, or goes back to an earlier cut: ends all streams with
  // `why`, and starts no further action. Actions that have begun continue.
  // Final.
  void Close(const absl::Status& why);
  // After Close: frees the live merges, and ends uploads to the mirror. False
  // while another thread still uses one: then call it again before the shard is
  // destroyed.
  bool EndUses();
  // Run.run_uid; empty if it is not known.
  std::string run_uid() const;
  // As ShardMachine::Report and ReportWhole.
  v1::ShardReport Report(int64_t report_seq, bool takes_changes);
  void ReportWhole();
  // True after a fault, until the server starts again.
  bool has_stopped() const;
  // True while an action fails and is tried again.
  bool is_blocked() const;

  // --- For the handlers -----------------------------------------------------

  RunStore& store() { return *store_; }
  PushWaiters& waiters() { return waiters_; }

  // Admits a push and binds its key. Returns the contribution that the stream
  // writes. Errors of ParameterService.PushOuterGradient. Blocks on the disk
  // for a new key.
  absl::StatusOr<std::shared_ptr<Contribution>> OpenPush(
      const v1::PushHeader& header, absl::string_view session_sha256);
  // The reason of Close. As CheckMember: call it after the stream is added to
  // waiters().
  absl::Status CheckOpen() const;
  // OK if the newest plan allows a push of `slot`. Call it after the stream is
  // added to waiters(), which tell the stream when that changes.
  //
  // FAILED_PRECONDITION, NOT_A_MEMBER: the slot's island is no longer a member.
  absl::Status CheckMember(int32_t slot) const;
  // Admits an import. Returns the contribution that the stream writes; null if
  // version 0 exists and is the same. Errors of
  // ParameterService.ImportParameters. Blocks on the disk the first time.
  absl::StatusOr<std::shared_ptr<Contribution>> OpenImport(
      const v1::ImportHeader& header);
  // As ContributionLog::WriteBlocks, but returns the error that ends the
  // stream. Blocks on the disk.
  absl::StatusOr<bool> WriteBlocks(Contribution& contribution,
                                   IndexRange blocks,
                                   absl::Span<const absl::string_view> pieces,
                                   absl::Span<const BlockFact> facts);
  // Finishes a contribution on another thread, then settles its streams.
  // Requires: all its blocks are present, and the caller must finish it.
  void FinishLater(std::shared_ptr<Contribution> contribution);
  // Durability `island`: where its blocks go. PushWaiter::OnLiveMerge follows
  // once the set is known.
  //
  // ABORTED: the contribution or its round is decided.
  absl::StatusOr<LivePlace> FindLiveMerge(
      const v1::ContributionInfo& info) const;
  // True if a COMMIT or the plan has decided it: its streams are settled.
  bool IsDecided(const ContributionKey& key) const;
  // Refuses the contribution and settles its waiters. An import is dropped
  // instead, so that a correct one can be pushed. Blocks on the disk. Requires:
  // TakeRefusal or TakeFinish returned true.
  void RefuseWhole(const Contribution& contribution,
                   const absl::Status& reason);

  // The source of a pull: a version, a chain of deltas, or a kept contribution.
  struct PullSource {
    HeldVersion held;
    VersionReaders::Reading reading;  // Registers the reader while it lives.
    int64_t version = 0;
    v1::PullContent content = v1::PULL_CONTENT_PARAMETERS;
    Digest128 digest;  // Digest of the values that the caller then has.
    int array = 0;     // Array of the version; unused for CHAIN.
    // CHAIN: the deltas of versions from_version + 1 to `version`.
    int64_t from_version = 0;
    std::vector<std::shared_ptr<DeltaFile>> chain;
    // `array` is the optimizer's: its bytes are copied, never lent.
    bool is_state = false;
    // A merged contribution, instead of a version.
    std::shared_ptr<Contribution> kept;
    Digest128 replica_digest;  // At the version that merged `kept`.
  };
  // Opens what PullParameters reads. Ignores `range` of the request. The reader
  // is displaced later if too many released versions have readers. Errors of
  // ParameterService.PullParameters.
  absl::StatusOr<PullSource> OpenPull(const v1::PullParametersRequest& request,
                                      const Reader& reader);
  // Opens what PullKept reads: `held` and `array`, or `kept`. Ignores `range`
  // of the request. Errors of ParameterService.PullKept. Blocks on the disk.
  absl::StatusOr<PullSource> OpenKept(const v1::PullKeptRequest& request,
                                      const Reader& reader);

  // True, once, after this shard found the disk full.
  bool TakeNoRoom() { return no_room_.exchange(false); }
  // A shard of the server found the disk full: gives up what pins keep.
  void GiveUpKept();

  // A reader of a version met damage. Checkpoints that name the version are
  // damaged; if it is the newest version, the shard stops. Returns the error
  // for the reader's caller.
  absl::Status OnDamagedVersion(int32_t fragment, int64_t version,
                                const absl::Status& damage);

  // A reader of the delta of a version met damage: removes the delta.
  void OnDamagedDelta(int32_t fragment, int64_t version,
                      const absl::Status& damage);

  void AddReceivedBytes(int64_t bytes) { received_bytes_ += bytes; }
  void AddSentBytes(int64_t bytes) { sent_bytes_ += bytes; }

 private:
  Shard(const ShardResources& resources, std::unique_ptr<RunStore> store,
        std::unique_ptr<OuterOptimizer> optimizer,
        std::unique_ptr<MergeRule> rule, ShardShape shape,
        RecoveredShard recovered);

  // The error of a read of a contribution that is not kept. `given_up`: why it
  // was given up; empty if no pin keeps it.
  absl::Status NotKept(const ContributionKey& key,
                       const std::string& given_up) const;

  void Advance();
  void AdvanceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Post(ShardAction action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteBlockedReason(const BlockedReasons::Cause& cause,
                         absl::string_view name, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The disk failed a contribution. Returns the error for its streams.
  // DATA_LOSS stops the shard; any other error becomes a blocked reason.
  absl::Status OnLogError(const v1::ContributionInfo& info,
                          const absl::Status& error);
  // An action that is not tried again failed. DATA_LOSS stops the shard.
  void OnQuietError(const ShardAction& action, const absl::Status& error);
  // Tells the machine how an action ended, and posts the next ones.
  void Ended(const ShardAction& action, const absl::Status& status);
  void Changed();
  // Chooses between parameters, replica and chain of `source`'s version.
  absl::Status ChooseContent(const v1::PullParametersRequest& request,
                             PullSource& source);

  void RunMakeVersion0(const ShardAction& action);
  // Frees imports whose version 0 is durable.
  void DropImports();
  void RunMeasure(const ShardAction& action);
  void RunLiveMerge(const ShardAction& action);
  void RunPrepare(const ShardAction& action);
  // Undoes the publication of a version that could not be recorded as prepared.
  void GiveUpPrepared(int32_t fragment, int64_t version);
  // A merge of `seal` met `damage`. If contributions are damaged: forgets them
  // and returns UNAVAILABLE, so that the merge is tried again. If none is
  // damaged, or the seal is committed: returns `damage`.
  absl::Status LoseDamaged(const v1::Seal& seal, const absl::Status& damage);
  void RunPersist(const ShardAction& action);
  void RunDrop(const ShardAction& action);
  void RunReserve(const ShardAction& action);
  void RunRelease(const ShardAction& action);
  void RunDropSpares(const ShardAction& action);
  void RunWriteManifest(const ShardAction& action);
  void RunDropManifest(const ShardAction& action);
  void RunDropKept(const ShardAction& action);
  // Gives the shard's parts of a checkpoint to the mirror.
  void RunMirror(const v1::Pin& pin);
  absl::StatusOr<MirrorJob> MakeMirrorJob(const v1::Pin& pin);
  void OnMirrored(const v1::Pin& pin, const std::vector<MirroredPart>& parts);
  void OnMirrorFailed(const v1::Pin& pin, const absl::Status& error);
  std::vector<std::string> MirrorArrayNames() const;
  void RunFinish(const std::shared_ptr<Contribution>& contribution);
  // Checks a complete contribution: digest of an import, norm of a push.
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
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // Why; OK: it is open.
  // Committed live merges, to free after the lock is released.
  std::vector<std::shared_ptr<const void>> live_done_ ABSL_GUARDED_BY(mutex_);
  // Outcomes, to tell streams after the lock is released.
  std::vector<std::pair<ContributionKey, absl::Status>> to_settle_
      ABSL_GUARDED_BY(mutex_);
  // An action failed: the next Tick tries again.
  bool retry_ ABSL_GUARDED_BY(mutex_) = false;
  BlockedReasons blocked_reasons_ ABSL_GUARDED_BY(mutex_);
  std::string logged_fault_ ABSL_GUARDED_BY(mutex_);
  std::string logged_wait_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::string> logged_reserves_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
