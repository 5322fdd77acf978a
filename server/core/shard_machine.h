// What one shard of one run has to do next: the plan and what is known of the
// disk go in, actions come out.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.
//
// A shard holds, of every fragment, versions (parameters and optimizer state,
// immutable once made) and contributions. The caller carries out the actions
// and says how each ended; it may take any time and any order. Every action is
// idempotent for the caller, because after a crash it is asked for again.
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

#ifndef SERVER_CORE_SHARD_MACHINE_H_
#define SERVER_CORE_SHARD_MACHINE_H_

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
#include "atoll/v1/server_service.pb.h"
#include "base/layout/digest.h"
#include "server/core/checkpoint_keeper.h"
#include "server/core/contribution_key.h"
#include "server/core/live_set.h"

namespace atl::server {

// What a shard is of; does not change.
struct ShardShape {
  std::string run_id;
  int32_t shard = 0;
  uint64_t layout_fingerprint = 0;
  bool import = false;  // Version 0 comes from a client.
  bool judged = false;  // The merge rule needs a verdict.
  bool live_merge =
      false;  // Level ISLAND: contributions are merged as they come.
  v1::Codec codec = v1::CODEC_F32;  // Of contributions.
  int64_t max_staleness = 0;  // ScheduleSpec.max_staleness.
  // One entry a fragment.
  struct Fragment {
    bool holds = false;      // False: this shard has no block of it.
    bool holds_all = false;  // True: no other shard has a block of it.
  };
  std::vector<Fragment> fragments;
};

// A contribution that is whole and durable here.
struct StoredFact {
  v1::ContributionInfo info;
  double norm_squared = 0;
};

// Of a reason why a contribution is refused, what is kept and reported.
inline constexpr size_t kRefusalBytesMax = 256;

// Why a contribution is refused.
struct RefusedFact {
  std::string reason;  // At most kRefusalBytesMax.
  std::optional<int64_t> anchor_version;  // Of its header, if that is known.
};

// A merge that is ready, or was when a process before this one recorded it.
struct PreparedFact {
  int32_t fragment = 0;
  int64_t version = 0;  // v; the merge makes v + 1.
  int64_t attempt = 0;
  Digest128 digest;
  bool finite = true;
  double norm_squared = 0;
  Digest128 replica_digest;  // Of V of v + 1, in a run with a view.
};

// The statistics of a sealed round, which its verdict is made from. Not kept:
// a start computes them again.
struct MeasuredFact {
  int32_t fragment = 0;
  int64_t version = 0;  // v; the merge makes v + 1.
  int64_t attempt = 0;
  std::vector<std::string> grams;  // As RoundStatistics.grams.
};

// What a start finds on the disk.
struct RecoveredShard {
  int64_t run_epoch = 0;
  int64_t persisted_commit_seq = 0;
  // One entry a fragment: its newest persisted version, -1 for none, and the
  // digest part of version 0 if it has one.
  std::vector<int64_t> versions;
  std::vector<Digest128> version0_digests;
  // Every (fragment, version) that has a file.
  std::set<std::pair<int32_t, int64_t>> held;
  std::vector<StoredFact> stored;
  std::vector<v1::ContributionInfo> partial;
  std::map<ContributionKey, RefusedFact> refused;
  // Fragments whose import is stored, but is not version 0 yet.
  std::set<int32_t> imported;
  // Was stored, and why it is not there any more.
  std::map<ContributionKey, std::string> lost;
  // Newest PREPARED record of each fragment that has one.
  std::vector<PreparedFact> prepared;
  std::vector<ManifestFact> manifests;
  // Those of them whose version is in its file, whole: they need no merge.
  std::set<int32_t> prepared_here;
  // Commits of which some contributions are kept for a pin.
  std::set<int64_t> kept_commits;
  // Pins, as in Action::pins, that nothing is kept for any more, and why.
  std::map<std::string, std::string> given_up;
};

enum class ActionKind {
  kMakeVersion0,  // fragment: generate or take from the import, persist,
                  // OnVersion0.
  kReserve,       // fragment, version, count: space for a round. No answer.
  kMeasure,       // seal: statistics of its contributions, OnMeasured.
  kLiveMerge,     // gather: take in these as they come; all others, and what
                  // came for another set, are pushed again. Answer: OnFailed.
                  // Without a key: give up what was taken in.
  kPrepare,       // seal: merge into v + 1, record it, OnPrepared.
  kDiscard,       // fragment, version: forget what kPrepare made. No answer.
  kApply,         // commit: v + 1 is now the newest. No answer.
  kPersist,       // commit, keys: make it durable and free `keys`, OnPersisted.
  kDrop,          // keys: free these contributions. No answer.
  kRelease,       // fragment, version: delete its file. No answer.
  kWriteManifest,  // pin: of a checkpoint, OnManifestWritten.
  kDropManifest,   // pin.pin_id: delete it, OnManifestDropped.
  kDropKept,       // commit_seqs: free what is kept of them; pins: forget that
                   // these were given up. No answer.
  kDropSpares,     // The run has ended: remove files that wait to be written
                   // again. No answer.
  kGiveUpKept,  // commit_seqs: free what is kept of them, for the disk is full;
                // pins, reason: note that they were given up. No answer.
};

struct Action {
  ActionKind kind;
  int32_t fragment = 0;
  int64_t version = 0;
  int64_t attempt = 0;
  int64_t count = 0;
  v1::Seal seal;
  v1::Commit commit;
  LiveSet live_merge;
  std::vector<ContributionKey> keys;
  bool keep = false;  // kPersist: what it merged is kept for a pin.
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

  // Takes in a plan. One of a lower run_epoch than an earlier is ignored.
  void OnPlan(const v1::ServerRunPlan& plan);
  // The newest plan does not have the run: it has ended, and gathers nothing.
  // What else the last plan said stands. False if that was known.
  bool OnUnplanned() { return !std::exchange(unplanned_, true); }
  // An import of `fragment` is whole and durable.
  void OnImported(int32_t fragment);
  // kMakeVersion0 is done: version 0 is durable.
  void OnVersion0(int32_t fragment, const Digest128& digest);
  // A contribution's first header was bound to its key.
  void OnBound(const v1::ContributionInfo& info);
  // It is whole and durable; at level ISLAND: taken in, for set `live_set_id`.
  void OnStored(const v1::ContributionInfo& info, double norm_squared,
                int64_t live_set_id = 0);
  // It was, and is not there any more. Until its COMMIT it can be pushed again;
  // after it the shard has to stop.
  void OnLost(const ContributionKey& key, absl::string_view why);
  // It is refused, durably.
  void OnRefused(const v1::ContributionInfo& info, absl::string_view reason);
  // kMeasure is done.
  void OnMeasured(MeasuredFact measured);
  // kPrepare is done.
  void OnPrepared(const PreparedFact& prepared);
  // kPersist is done.
  void OnPersisted(int64_t commit_seq);
  // kWriteManifest and kDropManifest are done.
  void OnManifestWritten(const std::string& pin_id);
  void OnManifestDropped(const std::string& pin_id);
  // The disk is full: what is kept for pins makes room for rounds.
  void OnNoRoom() { no_room_ = true; }
  // A reader found that a version cannot be read. Stops the shard if it is the
  // newest of its fragment: nothing can be made from it.
  void OnVersionDamaged(int32_t fragment, int64_t version,
                        absl::string_view why);
  // An action that has an answer failed. DATA_LOSS, INTERNAL and
  // INVALID_ARGUMENT stop the shard; anything else lets NextActions name the
  // action again.
  void OnFailed(const Action& action, const absl::Status& status);
  // Stops the shard.
  void OnFault(absl::string_view reason);

  // --- Effects --------------------------------------------------------------

  // What may be done now and was not named before. Once the shard has stopped,
  // only that what was gathered is given up.
  std::vector<Action> NextActions();

  // The shard's state for the coordinator, without the counters of bytes.
  v1::ShardReport Report() const;

  // What the coordinator waits for on this shard, in a sentence; empty if it
  // waits for nothing.
  const std::string& waiting_reason() const { return waiting_reason_; }

  // --- Questions ------------------------------------------------------------

  // UNAVAILABLE: the shard has stopped, or knows no plan.
  absl::Status CheckServes() const;
  // Whether a push may begin. `session_sha256` is the SHA-256 of the secret
  // that the caller sent.
  //
  // The codes are those of ParameterService.PushOuterGradient; UNAVAILABLE if
  // the header speaks of what no plan has said yet.
  absl::Status AdmitPush(const v1::PushHeader& header,
                         absl::string_view session_sha256) const;
  // Whether a push of `slot` that has begun may go on.
  //
  // FAILED_PRECONDITION, NOT_A_MEMBER: the plan has no such member.
  absl::Status CheckMember(int32_t slot) const;
  // Whether an import may begin. True: version 0 is here, and is the same.
  //
  // The codes are those of ParameterService.ImportParameters.
  absl::StatusOr<bool> AdmitImport(const v1::ImportHeader& header) const;
  // Whether these epochs fit, for pulls and imports. A run_epoch or
  // placement_epoch of 0 is not checked.
  absl::Status CheckPlace(int64_t run_epoch, int64_t placement_epoch,
                          uint64_t layout_fingerprint, int32_t shard) const;

  bool has_plan() const { return has_plan_; }
  // The newest; all zero before the first.
  const v1::ServerRunPlan& plan() const { return plan_; }
  // True for the newest version, and for older ones that are kept for rounds,
  // readers that may come, and pins.
  bool Holds(int32_t fragment, int64_t version) const {
    return held_.count({fragment, version}) > 0;
  }
  // True if the plan commits what `seal` merges.
  bool IsCommitted(const v1::Seal& seal) const;
  int64_t run_epoch() const { return run_epoch_; }
  // Newest applied version; -1 if there is no version 0.
  int64_t version(int32_t fragment) const {
    return fragments_[fragment].version;
  }
  int64_t applied_commit_seq() const { return applied_commit_seq_; }
  // True if something about the key is recorded here, that no COMMIT that is
  // persisted has decided.
  bool Knows(const ContributionKey& key) const;
  // Why nothing is kept for a pin of the plan any more; empty if it is, or if
  // no pin says that it should be.
  std::string given_up() const {
    return given_up_.empty() ? "" : given_up_.begin()->second;
  }
  // Whether the key ended with a COMMIT that is applied and not yet persisted.
  bool decided(const ContributionKey& key) const {
    return decided_.count(key) != 0;
  }
  // Why the shard has stopped; empty if it has not.
  const std::string& fault() const { return fault_; }

 private:
  struct Fragment {
    int64_t version = -1;            // Newest applied.
    int64_t persisted_version = -1;  // Newest persisted.
    Digest128 version0_digest;
    bool version0_named = false;           // kMakeVersion0 is under way.
    bool imported = false;                 // Its import is stored.
    int64_t reserved_version = -1;         // kReserve was named for it.
    std::optional<PreparedFact> prepared;  // Ready now.
    std::optional<PreparedFact> recorded;  // What a record says of a round.
    // Level ISLAND: what is merged as it comes.
    std::optional<LiveSet> live_merge;
    bool holds_live_merge = false;  // A set was named that was not given up.
    // kPrepare that is under way.
    std::optional<std::pair<int64_t, int64_t>> preparing;  // version, attempt
    std::optional<MeasuredFact> measured;  // Reported while `seal` waits.
    std::optional<std::pair<int64_t, int64_t>> measuring;  // As preparing.
  };

  void NameVersion0(std::vector<Action>* actions);
  void NameReserves(std::vector<Action>* actions);
  void NameApplies(std::vector<Action>* actions);
  void NameLiveSet(int32_t f, std::vector<Action>* actions);
  // What fragment f has gathered, or was gathering, is let go.
  void NameGiveUp(int32_t f, std::vector<Action>* actions);
  void NamePrepare(int32_t f, std::vector<Action>* actions);
  // For a seal without its verdict: measures it, or keeps what was measured.
  void NameMeasure(const v1::Seal& seal, std::vector<Action>* actions);
  void NamePersist(std::vector<Action>* actions);
  void NameDrops(std::vector<Action>* actions);
  void NameReleases(std::vector<Action>* actions);
  void NameManifests(std::vector<Action>* actions);
  void NameKept(std::vector<Action>* actions);
  void NameDropSpares(std::vector<Action>* actions);

  // Empty if it was not.
  std::string WhyGivenUp(const v1::Pin& pin) const;
  // True if a pin of the plan keeps what this commit merged.
  bool IsKept(int64_t commit_seq) const;
  const v1::Seal* FindSeal(int32_t f, int64_t version, int64_t attempt) const;
  // The COMMIT that makes the next version of fragment f; null for none.
  const v1::Commit* CommitOfNext(int32_t f) const;
  // The seal that fragment f has to merge now; null for none.
  const v1::Seal* WantedSeal(int32_t f) const;
  // What fragment f has to gather now; none if a header is missing.
  std::optional<LiveSet> WantedSet(int32_t f);
  // True if what fragment f gathers may still be what it has to merge.
  bool MergesLiveForPlan(int32_t f) const;
  // The newest contribution of a slot to a round that is bound here.
  const v1::ContributionInfo* FindBound(int32_t f, int64_t version,
                                        int32_t slot) const;
  // What fragment f has gathered is of no use: nothing of it is stored.
  void DiscardLiveMerge(int32_t f);
  // The next commit to apply; null for none.
  const v1::Commit* NextCommit() const;
  // True if all contributions of `seal` are stored; stops the shard if one has
  // another digest, or if one is lost that is committed.
  bool SealIsStored(const v1::Seal& seal);
  // The error of a fragment of which no block is here.
  absl::Status NoBlock(int32_t fragment) const;
  absl::Status AdmitContribution(const v1::ContributionInfo& info) const;
  // FAILED_PRECONDITION, NOT_A_MEMBER: the plan has none.
  absl::StatusOr<v1::PlanMember> FindMember(int32_t slot) const;
  absl::Status AdmitMember(int32_t slot, int64_t island_epoch,
                           absl::string_view session_sha256) const;
  void Forget(const ContributionKey& key);
  bool AllInitialized() const;

  const ShardShape shape_;
  std::string fault_;
  std::string waiting_reason_;
  bool has_plan_ = false;
  bool unplanned_ = false;  // The newest plan does not have the run.
  v1::ServerRunPlan plan_;
  int64_t run_epoch_ = 0;
  int64_t applied_commit_seq_ = 0;
  int64_t persisted_commit_seq_ = 0;
  std::vector<Fragment> fragments_;
  std::deque<v1::Commit> to_persist_;  // Applied, in order.
  int64_t live_merge_count_ = 0;
  bool persisting_ = false;  // kPersist of the first is under way.
  bool persist_keeps_ = false;  // Its `keep`.
  std::set<int64_t> kept_commits_;
  std::map<std::string, std::string> given_up_;  // Pins, and why.
  bool no_room_ = false;
  // kDropSpares was named, and nothing was freed since.
  bool spares_dropped_ = false;
  std::set<std::pair<int32_t, int64_t>> held_;
  CheckpointKeeper checkpoints_;
  std::map<ContributionKey, StoredFact> stored_;
  std::map<ContributionKey, v1::ContributionInfo> partial_;
  std::map<ContributionKey, RefusedFact> refused_;
  std::map<ContributionKey, std::string> lost_;
  // Decided by an applied COMMIT that is not persisted, or dropped: never
  // reported, never admitted again while they are here.
  std::set<ContributionKey> decided_;
};

}  // namespace atl::server

#endif  // SERVER_CORE_SHARD_MACHINE_H_
