// Decides what one shard of one run does next: plans and facts about the disk
// go in, actions come out. Pure: no thread, no clock, no I/O.
// Thread-compatible.
//
// A shard holds versions (parameters and optimizer state, immutable) and
// contributions of every fragment. The caller carries out the actions, in any
// order and time, and reports how each ended. Actions must be idempotent: after
// a crash the machine names them again.
//
// One fragment's round, as this shard sees it:
//
//   waiting --seal, all its contributions stored--> preparing --OnPrepared-->
//   prepared --COMMIT, in commit_seq order--> applied --OnPersisted-->
//   persisted
//
// With a merge rule that needs a verdict, before preparing:
//
//   waiting --seal, all stored--> measuring --OnMeasured--> measured
//   --the seal has its VERDICT--> preparing
//
// A restart is the same path: the machine starts from what was persisted and
// redoes the plan's commits from its stored contributions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/layout/digest.h"
#include "server/core/checkpoint_keeper.h"
#include "server/core/contribution_key.h"
#include "server/core/live_set.h"
#include "server/core/mirror_queue.h"

namespace atl::server {

struct ShardShape {
  std::string run_id;
  std::string run_uid;  // Run.run_uid; empty if it is not known.
  int32_t shard = 0;
  uint64_t layout_fingerprint = 0;
  bool import = false;  // Version 0 comes from a client.
  bool judged = false;  // The merge rule needs a verdict.
  bool live_merge =
      false;  // Level ISLAND: contributions are merged while they arrive.
  v1::Codec codec = v1::CODEC_F32;  // Encoding of contributions.
  int64_t max_staleness = 0;  // ScheduleSpec.max_staleness.
  bool mirror = false;        // CheckpointSpec.mirror.
  // One entry a fragment.
  struct Fragment {
    bool holds = false;      // False: this shard has no block of it.
    bool holds_all = false;  // True: no other shard has a block of it.
  };
  std::vector<Fragment> fragments;
};

// A contribution that is complete and durable here.
struct StoredFact {
  v1::ContributionInfo info;
  double norm_squared = 0;
};

// Longest refusal reason that is kept and reported.
inline constexpr size_t kRefusalBytesMax = 256;

struct RefusedFact {
  std::string reason;  // At most kRefusalBytesMax.
  std::optional<int64_t> anchor_version;  // From its header, if known.
};

// Version 0 of a fragment, this shard's part.
struct Version0Fact {
  Digest128 digest;
  double norm_squared = 0;  // Sum of squares of its elements.
};

// A merge that is ready, or was recorded as ready by an earlier process.
struct PreparedFact {
  int32_t fragment = 0;
  int64_t version = 0;  // v; the merge makes v + 1.
  int64_t attempt = 0;
  Digest128 digest;
  bool finite = true;
  double norm_squared = 0;
  Digest128 replica_digest;  // The replica's at v + 1, if the run has one.
};

// A sealed round's statistics, for its verdict. Recomputed after a restart.
struct MeasuredFact {
  int32_t fragment = 0;
  int64_t version = 0;  // v; the merge makes v + 1.
  int64_t attempt = 0;
  std::vector<std::string> grams;  // As RoundStatistics.grams.
};

struct RecoveredShard {
  int64_t run_epoch = 0;
  // The restore that begins this run_epoch has failed here; 0: none has. The
  // shard stays in `run_epoch` and reports its fault under this one.
  int64_t failed_run_epoch = 0;
  int64_t persisted_commit_seq = 0;
  // By fragment: newest persisted version, -1 for none; this shard's part of
  // version 0's digest, if there is one.
  std::vector<int64_t> versions;
  std::vector<Digest128> version0_digests;
  // The same for its sum of squares; nullopt if an older program made it.
  std::vector<std::optional<double>> version0_norms_squared;
  // Every (fragment, version) that has a file.
  std::set<std::pair<int32_t, int64_t>> held;
  std::vector<StoredFact> stored;
  std::vector<v1::ContributionInfo> partial;
  std::map<ContributionKey, RefusedFact> refused;
  // Fragments whose import is stored but not yet made into version 0.
  std::set<int32_t> imported;
  // Contributions that were stored and are lost, and why.
  std::map<ContributionKey, std::string> lost;
  // Newest PREPARED record of each fragment that has one.
  std::vector<PreparedFact> prepared;
  std::vector<ManifestFact> manifests;
  // Fragments of `prepared` whose version file is complete: they need no merge.
  std::set<int32_t> prepared_here;
  // Commits with contributions that are kept for a pin.
  std::set<int64_t> kept_commits;
  // Pins (as in ShardAction::pins) that lost what was kept for them, and why.
  std::map<std::string, std::string> given_up;
};

// Each kind: the fields of ShardAction that it uses, what to do, and the event
// that reports success, if any. OnFailed reports a failure.
enum class ActionKind {
  kMakeVersion0,  // fragment: generate it or read the import, persist it;
                  // OnVersion0.
  kReserve,       // fragment, version, count: reserve disk space for a round.
  kMeasure,       // seal: compute statistics of its contributions; OnMeasured.
  kLiveMerge,     // live_merge: merge these as they arrive. All others, and
                  // what arrived for another set, must be pushed again. Without
                  // a key: discard what was merged.
  kPrepare,       // seal: merge into v + 1 and record it; OnPrepared.
  kDiscard,       // fragment, version: delete what kPrepare made.
  kApply,         // commit: v + 1 is now the newest.
  kPersist,       // commit, keys: make it durable, free `keys`; OnPersisted.
  kDrop,          // keys: free these contributions.
  kRelease,       // fragment, version: delete its file.
  kWriteManifest,  // pin: write its checkpoint manifest; OnManifestWritten.
  kDropManifest,   // pin.pin_id: delete its manifest; OnManifestDropped.
  kDropKept,       // commit_seqs: free what is kept of them. pins: delete the
                   // record that these were given up.
  kDropSpares,     // The run has ended: delete spare files.
  kGiveUpKept,     // commit_seqs: the disk is full, free what is kept of them.
                   // pins, reason: record that they were given up.
};

struct ShardAction {
  ActionKind kind;
  int32_t fragment = 0;
  int64_t version = 0;
  int64_t attempt = 0;
  int64_t count = 0;
  v1::Seal seal;
  v1::Commit commit;
  LiveSet live_merge;
  std::vector<ContributionKey> keys;
  bool keep = false;  // kPersist: keep what it merged for a pin.
  v1::Pin pin;
  std::vector<int64_t> commit_seqs;
  std::vector<std::string> pins;  // "PIN_ID@COMMIT_SEQ".
  std::string reason;  // kGiveUpKept: why.

  // One line: "prepare fragment 0 version 3 attempt 0".
  std::string ToString() const;
};

class ShardMachine {
 public:
  ShardMachine(ShardShape shape, RecoveredShard recovered);

  // --- Events ---------------------------------------------------------------

  // A plan with a lower run_epoch than an earlier one is ignored, and so is one
  // that needs a restore. One that does not fit what is here is not taken:
  // nothing is deleted, and the shard stops.
  // OTHER_RUN and PLAN_BEHIND end with a plan that fits; SHARD_BEHIND stays.
  void OnPlan(const v1::ServerRunPlan& plan);
  // True if `plan` begins a run_epoch with a restore that this shard has not
  // done: its directory must go back to the plan's cut (RunStore::Rollback), and
  // another machine start from it. Whether this one has stopped does not matter.
  // False if that restore has failed here.
  bool NeedsRestore(const v1::ServerRunPlan& plan) const;
  // The newest plan does not contain the run: it has ended, and its live merges
  // are given up. The rest of its last plan stays valid. False if known.
  bool OnUnplanned() { return !std::exchange(unplanned_, true); }
  // An import of `fragment` is complete and durable.
  void OnImported(int32_t fragment);
  void OnVersion0(int32_t fragment, const Version0Fact& fact);
  // The key of an admitted push is being bound, by a stream or several. Counts
  // like an undecided contribution until each stream's OnOpened.
  void OnOpening(const ContributionKey& key) { opening_.insert(key); }
  void OnOpened(const ContributionKey& key) {
    opening_.erase(opening_.find(key));
  }
  // A contribution's first header was bound to its key.
  void OnBound(const v1::ContributionInfo& info);
  // It is complete and durable. At level ISLAND: merged into set `live_set_id`;
  // ignored if that is not the fragment's current set.
  void OnStored(const v1::ContributionInfo& info, double norm_squared,
                int64_t live_set_id = 0);
  // Stored, but lost. It may come again until its COMMIT; then the shard stops.
  void OnLost(const ContributionKey& key, absl::string_view why);
  // It is refused, durably.
  void OnRefused(const v1::ContributionInfo& info, absl::string_view reason);
  void OnMeasured(MeasuredFact measured);
  void OnPrepared(const PreparedFact& prepared);
  void OnPersisted(int64_t commit_seq);
  void OnManifestWritten(const std::string& pin_id);
  void OnManifestDropped(const std::string& pin_id);
  // The disk is full: what is kept for pins must be freed for rounds.
  void OnNoRoom() { no_room_ = true; }
  // A reader found a damaged version. Stops the shard if it is the newest, from
  // which the next must be made.
  void OnVersionDamaged(int32_t fragment, int64_t version,
                        absl::string_view why);
  // An action failed. DATA_LOSS, INTERNAL and INVALID_ARGUMENT stop the shard,
  // except for kWriteManifest, which breaks only its checkpoint. After any
  // other error NextActions may name the action again.
  void OnFailed(const ShardAction& action, const absl::Status& status);
  // Stops the shard until the server starts again. The first one is kept.
  void OnFault(v1::Fault fault);

  // --- Effects --------------------------------------------------------------

  // New actions that may start now. After the shard has stopped, only
  // kLiveMerge that gives up its live merges.
  std::vector<ShardAction> NextActions();

  // The checkpoint to upload to the mirror now, as MirrorQueue::Next. Always
  // none of a run without a mirror, or after the shard has stopped.
  std::optional<v1::Pin> NextMirror();
  // As MirrorQueue::OnMirrored.
  void OnMirrored(const v1::Pin& pin, std::vector<v1::MirroredPart> parts,
                  std::vector<std::string> array_names) {
    mirror_.OnMirrored(pin, std::move(parts), std::move(array_names));
  }

  // The whole report for the coordinator, without byte counters.
  v1::ShardReport Report() const;
  // The next report, with this report_seq: of changes since the one before,
  // unless a whole one is due or the coordinator takes no others.
  v1::ShardReport Report(int64_t report_seq, bool takes_changes);
  // The coordinator may not have taken the newest report: a whole one is due.
  void ReportWhole() {
    base_report_seq_ = 0;
    changed_.clear();
  }

  // The reason why the coordinator must wait for this shard, as a sentence;
  // empty if it need not wait.
  const std::string& waiting_reason() const { return waiting_reason_; }

  // --- Questions ------------------------------------------------------------

  // UNAVAILABLE: the shard has stopped, or has no plan.
  absl::Status CheckServes() const;
  // FAILED_PRECONDITION, OTHER_RUN: the call is for another run of this run_id.
  // An empty `run_uid` is not checked.
  absl::Status CheckRun(absl::string_view run_uid) const;
  // Whether a push may begin. `session_sha256`: of the caller's session secret.
  // Errors as ParameterService.PushOuterGradient; UNAVAILABLE if the header is
  // ahead of this shard's plan.
  absl::Status AdmitPush(const v1::PushHeader& header,
                         absl::string_view session_sha256) const;
  // Whether an open push of `slot` may continue.
  // FAILED_PRECONDITION, NOT_A_MEMBER: the plan has no such member.
  absl::Status CheckMember(int32_t slot) const;
  // Whether an import may begin. True: version 0 exists with this digest.
  // Errors as ParameterService.ImportParameters.
  absl::StatusOr<bool> AdmitImport(const v1::ImportHeader& header) const;
  // Checks the place and epochs of pulls and imports. A run_epoch or
  // placement_epoch of 0 is not checked.
  // ABORTED: another layout or shard, or an epoch that is too old. UNAVAILABLE:
  // an epoch that this server does not know yet.
  absl::Status CheckPlace(int64_t run_epoch, int64_t placement_epoch,
                          uint64_t layout_fingerprint, int32_t shard) const;

  // The newest plan; default values before the first.
  const v1::ServerRunPlan& plan() const { return plan_; }
  // True for the newest version, and others held for rounds, readers and pins.
  bool Holds(int32_t fragment, int64_t version) const {
    return held_.count({fragment, version}) > 0;
  }
  bool IsCommitted(const v1::Seal& seal) const;
  int64_t run_epoch() const { return run_epoch_; }
  // The plan's, if the shard had none; empty if neither knows it.
  const std::string& run_uid() const { return run_uid_; }
  // Newest applied version; -1 if there is no version 0.
  int64_t version(int32_t fragment) const {
    return fragments_[fragment].version;
  }
  // True if a record of the key is here that no persisted COMMIT has decided.
  bool Knows(const ContributionKey& key) const;
  // Returns why contributions that a planned pin keeps were given up, if any.
  std::string given_up() const {
    return given_up_.empty() ? "" : given_up_.begin()->second;
  }
  // True if a COMMIT that is applied but not persisted decided the key.
  bool decided(const ContributionKey& key) const {
    return decided_.count(key) != 0;
  }
  bool has_stopped() const { return fault_ || plan_fault_; }
  // Returns why the shard has stopped, in one line; empty if it runs.
  std::string fault() const;

 private:
  struct Fragment {
    int64_t version = -1;            // Newest applied.
    int64_t persisted_version = -1;  // Newest persisted.
    Digest128 version0_digest;
    std::optional<double> version0_norm_squared;
    bool version0_named = false;           // kMakeVersion0 is running.
    bool imported = false;                 // Its import is stored.
    int64_t reserved_version = -1;         // kReserve was named for it.
    std::optional<PreparedFact> prepared;  // Ready now.
    std::optional<PreparedFact> recorded;  // The newest PREPARED record.
    std::optional<LiveSet> live_merge;
    bool holds_live_merge = false;  // A set was named and not given up.
    std::optional<std::pair<int64_t, int64_t>> preparing;  // version, attempt
    std::optional<MeasuredFact> measured;  // Reported while `seal` waits.
    std::optional<std::pair<int64_t, int64_t>> measuring;  // As preparing.
  };

  // Returns why the plan is not this shard's, or older than what is here.
  std::optional<v1::Fault> FindPlanFault(const v1::ServerRunPlan& plan) const;
  // SHARD_BEHIND: what the plan assumes and the shard does not have.
  std::optional<v1::Fault> FindMissing(const v1::ServerRunPlan& plan) const;
  // Stops the shard if version 0 is not the one that the plan has decided.
  void CheckVersion0();

  void NameVersion0(std::vector<ShardAction>* actions);
  void NameReserves(std::vector<ShardAction>* actions);
  void NameApplies(std::vector<ShardAction>* actions);
  void NameLiveSet(int32_t f, std::vector<ShardAction>* actions);
  void NameGiveUp(int32_t f, std::vector<ShardAction>* actions);
  void NamePrepare(int32_t f, std::vector<ShardAction>* actions);
  // For a seal without its verdict: measures it, unless that is done.
  void NameMeasure(const v1::Seal& seal, std::vector<ShardAction>* actions);
  void NamePersist(std::vector<ShardAction>* actions);
  void NameDrops(std::vector<ShardAction>* actions);
  void NameReleases(std::vector<ShardAction>* actions);
  void NameManifests(std::vector<ShardAction>* actions);
  void NameKept(std::vector<ShardAction>* actions);
  void NameDropSpares(std::vector<ShardAction>* actions);

  // Contributions that a COMMIT of the plan, or an earlier one, has decided.
  std::set<ContributionKey> ListCommitted() const;
  // Adds the undecided, unsealed contributions of revoked islands.
  void AddRevoked(std::vector<ContributionKey>& keys) const;
  // Empty if what is kept for it was not given up.
  std::string WhyGivenUp(const v1::Pin& pin) const;
  // True if a pin of the plan keeps what this commit merged.
  bool IsKept(int64_t commit_seq) const;
  const v1::Seal* FindSeal(int32_t f, int64_t version, int64_t attempt) const;
  // The COMMIT of fragment f's next version; null for none.
  const v1::Commit* CommitOfNext(int32_t f) const;
  // The seal that fragment f must merge now; null for none.
  const v1::Seal* WantedSeal(int32_t f) const;
  // The contributions that fragment f must merge live now; none if a header is
  // missing.
  std::optional<LiveSet> WantedSet(int32_t f);
  // True if fragment f's live merge may still become what the plan seals.
  bool MergesLiveForPlan(int32_t f) const;
  // The slot's newest contribution to a round that is bound here.
  const v1::ContributionInfo* FindBound(int32_t f, int64_t version,
                                        int32_t slot) const;
  // Drops fragment f's live merge: none of it counts as stored.
  void DiscardLiveMerge(int32_t f);
  const v1::Commit* NextCommit() const;
  // True if all contributions of `seal` are stored. Stops the shard if one has
  // another digest, or if one is committed and lost.
  bool SealIsStored(const v1::Seal& seal);
  // The error for a fragment of which this shard has no block.
  absl::Status NoBlock(int32_t fragment) const;
  absl::Status AdmitContribution(const v1::ContributionInfo& info) const;
  // RESOURCE_EXHAUSTED: too many contributions are undecided to bind another.
  absl::Status CheckUndecided(const ContributionKey& key) const;
  absl::StatusOr<v1::PlanMember> FindMember(int32_t slot) const;
  absl::Status AdmitMember(int32_t slot, int64_t island_epoch,
                           absl::string_view session_sha256) const;
  void Forget(const ContributionKey& key);
  bool AllInitialized() const;
  // The report without contributions.
  v1::ShardReport ReportState() const;
  bool IsReported(const ContributionKey& key) const {
    return !decided_.count(key) && (stored_.count(key) || refused_.count(key));
  }
  // Reports say something else of the contribution from now on.
  void NoteChanged(const ContributionKey& key);

  const ShardShape shape_;
  std::string run_uid_;
  std::optional<v1::Fault> fault_;       // Permanent.
  std::optional<v1::Fault> plan_fault_;  // The newest plan's fault.
  std::string waiting_reason_;
  bool has_plan_ = false;
  bool unplanned_ = false;  // The newest plan does not contain the run.
  v1::ServerRunPlan plan_;
  int64_t run_epoch_ = 0;
  const int64_t failed_run_epoch_ = 0;
  int64_t applied_commit_seq_ = 0;
  int64_t persisted_commit_seq_ = 0;
  std::vector<Fragment> fragments_;
  std::deque<v1::Commit> to_persist_;  // Applied, in order.
  int64_t live_merge_count_ = 0;
  bool persisting_ = false;  // kPersist of the first is running.
  bool persist_keeps_ = false;  // That action's `keep`.
  std::set<int64_t> kept_commits_;
  std::map<std::string, std::string> given_up_;  // Pins, and why.
  bool no_room_ = false;
  // kDropSpares was named, and nothing has been freed since.
  bool spares_dropped_ = false;
  std::set<std::pair<int32_t, int64_t>> held_;
  CheckpointKeeper checkpoints_;
  MirrorQueue mirror_;
  std::map<ContributionKey, StoredFact> stored_;
  std::map<ContributionKey, v1::ContributionInfo> partial_;
  std::multiset<ContributionKey> opening_;
  std::map<ContributionKey, RefusedFact> refused_;
  std::map<ContributionKey, std::string> lost_;
  // Decided by an applied, unpersisted COMMIT: neither reported nor admitted.
  std::set<ContributionKey> decided_;
  int64_t base_report_seq_ = 0;  // The newest report's; 0: a whole one is due.
  std::set<ContributionKey> changed_;  // Since that report.
};

}  // namespace atl::server
