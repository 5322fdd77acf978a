// The durable state of one run, as its records define it.
//
// Pure. Thread-compatible. Only Apply and Restore change the state, so a replay
// of the log gives the state that the log was written from. So does a snapshot
// plus the records after it. The size is bounded by members, fragments and data
// shards, not by rounds: old rounds are history (outputs/batch.h).

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/layout/layout.h"
#include "coordinator/core/state/outcome_table.h"
#include "coordinator/core/state/past.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {

// W: how far commits may run ahead of the slowest shard's persisted commit.
inline constexpr int64_t kCommitsAheadMax = 16;
inline constexpr size_t kMetricPointsMax = 4096;
inline constexpr size_t kEvaluationsMax = 64;
// Newest unmerged outcomes that a server's plan may name.
inline constexpr size_t kDroppedMax = 256;
// Merged contributions of a fragment whose norms are kept.
inline constexpr size_t kStepNormsMax = 64;
// Contributions of a fragment and member without a push that are kept: an
// outcome may come after later ones were told.
inline constexpr int kUnpushedKeptMax = 4;
// Rounds that an island sits out at most.
inline constexpr int64_t kSitOutRoundsMax = 64;

// A present or past member.
struct Member {
  storage::v1::MemberSet record;  // As last written.
  int64_t local_position = 0;     // Next window of its own, local data.
  int64_t merged_count = 0;
  int64_t unmerged_count = 0;
  absl::Time set_time;  // When `record` was written.
  // Elastic runs: rounds in a row with a refused contribution, since the newest
  // merged one. Refusals of one round count once.
  int32_t refused_count = 0;
  std::string refusal;         // Why the newest one was refused.
  absl::Time refusal_time;     // When; only if refused_count > 0.
  int64_t sits_out_until = 0;  // Not asked below this commit_seq.
  v1::IslandTotals totals;     // Island.totals.
  // The newest work without a push that is in `totals`, by fragment and seq: at
  // most kUnpushedKeptMax contributions of a fragment, and one piece (seq 0) of
  // which none was made.
  std::map<std::pair<int32_t, int64_t>, v1::UnpushedWork> newest_unpushed;
  void KeepUnpushed(const v1::UnpushedWork& work);

  // Leases a data shard and may push.
  bool present() const {
    return record.state() == v1::ISLAND_STATE_JOINING ||
           record.state() == v1::ISLAND_STATE_READY;
  }
  bool ready() const { return record.state() == v1::ISLAND_STATE_READY; }
  bool removed() const { return record.state() == v1::ISLAND_STATE_REMOVED; }
  // Joined with a token.
  bool enrolled() const { return !record.token_id().empty(); }
};

enum class RoundPhase { kIdle, kOpen, kSealed };

// A merged contribution.
struct StepNorm {
  double norm_by_steps = 0;  // Its norm divided by its counted steps.
  int64_t step_count = 0;    // Counted; 0 if an older record does not say.
};

storage::v1::MemberSnapshot ToSnapshot(const Member& member);

// True if the mirror has the checkpoint under the run_epoch of its past.
inline bool IsMirrored(const v1::Pin& pin) {
  return pin.has_mirror() && !pin.mirror().must_repeat();
}

// One fragment. Its round makes version `newest.version() + 1`.
struct FragmentState {
  v1::FragmentVersion newest;
  RoundPhase phase = RoundPhase::kIdle;
  int64_t attempt = 0;              // This round's, or the next one's.
  v1::OpenRound open;               // kOpen and kSealed.
  absl::Time open_time;             // kOpen and kSealed.
  storage::v1::RoundSealed sealed;  // kSealed.
  absl::Time seal_time;             // kSealed.
  // Median norms of the newest kMedianNormsMax verdicts, oldest first.
  std::deque<double> median_norms;
  // Norms of the newest kStepNormsMax merged contributions, oldest first.
  std::deque<StepNorm> step_norms;
  // The band of its commits (guard.h).
  storage::v1::FragmentGuard guard;
  // Async runs, by slot: what an island was last asked to do. A plan stands
  // until a contribution of the island is decided or the island is gone.
  std::map<int32_t, v1::SlotPlan> standing_plans;
  int64_t token_count = 0;  // In contributions merged into it.
};

// A decision of a part of the core: records to write, and why. Without records,
// `reason` says what the part waits for.
struct Decision {
  std::vector<storage::v1::Record> records;
  std::string reason;
};

// Appends a point to a series and drops the oldest beyond kMetricPointsMax.
void PushPoint(std::deque<v1::MetricPoint>& points, absl::Time time,
               int64_t commit_seq, double value);

// Returns the index in open.slots() of the plan of `slot`; -1: the round asks
// nothing of it.
int FindSlotPlan(const v1::OpenRound& open, int32_t slot);

class RunState {
 public:
  RunState() = default;

  // Applies the next record.
  //
  // DATA_LOSS: it does not follow from the state, which is then undefined.
  // Never occurs for a record that the core made.
  absl::Status Apply(const storage::v1::Record& record);

  // The whole state. Requires: created.
  storage::v1::RunSnapshot ToSnapshot() const;
  // Restores the state after record `revision`.
  //
  // DATA_LOSS: `snapshot` is incomplete, or the state not empty. The state is
  // then undefined.
  absl::Status Restore(const storage::v1::RunSnapshot& snapshot,
                       int64_t revision);

  // --- The run ---
  bool created() const { return layout_ != nullptr; }
  const std::string& run_id() const { return created_.run_id(); }
  // Random, made with the run.
  const std::string& run_uid() const { return created_.run_uid(); }
  const v1::RunSpec& spec() const { return *spec_; }
  // The same, for threads that may outlive the run. No event changes it.
  std::shared_ptr<const v1::RunSpec> shared_spec() const { return spec_; }
  const RunLayout& layout() const { return *layout_; }
  v1::RunState state() const { return state_.state(); }
  const std::string& state_reason() const { return state_.reason(); }
  int64_t run_epoch() const { return created_.run_epoch(); }
  int64_t revision() const { return revision_; }
  absl::Time create_time() const { return create_time_; }
  absl::Time end_time() const { return end_time_; }  // InfiniteFuture before.
  bool ended() const {
    return state() == v1::RUN_STATE_COMPLETED ||
           state() == v1::RUN_STATE_CANCELLED;
  }

  // --- Placement ---
  int64_t placement_epoch() const { return placed_.placement_epoch(); }
  // By shard; empty before the placement.
  const google::protobuf::RepeatedPtrField<std::string>& server_ids() const {
    return placed_.server_ids();
  }
  bool started() const { return !version0().empty(); }
  const google::protobuf::RepeatedPtrField<v1::FragmentVersion>& version0()
      const {
    return started_.version0();
  }
  // By fragment; empty if a shard's program was too old to report it.
  const google::protobuf::RepeatedField<double>& version0_norms() const {
    return started_.version0_norms();
  }

  // --- Members, by slot ---
  const std::vector<Member>& members() const { return members_; }
  // nullptr if the island never joined, or if another one took over its slot.
  const Member* FindMember(const std::string& island_id) const;

  // --- Rounds ---
  // By fragment; empty before `created`.
  const std::vector<FragmentState>& fragments() const { return fragments_; }
  int64_t commit_seq() const { return commit_seq_; }
  absl::Time last_commit_time() const { return last_commit_time_; }
  // The newest kCommitsAheadMax commits, oldest first: those that some shard
  // may still have to apply.
  const std::deque<storage::v1::CommitSnapshot>& recent_commits() const {
    return recent_commits_;
  }
  // By shard: what it had acknowledged at the newest COMMIT. Empty if an older
  // program wrote that.
  const std::vector<int64_t>& persisted_commit_seqs() const {
    return persisted_commit_seqs_;
  }
  const OutcomeTable& outcomes() const { return outcomes_; }
  const std::deque<v1::ContributionOutcome>& dropped() const {
    return dropped_;
  }
  // Next window of `data_shard` for the island with `slot`.
  int64_t DataPosition(int32_t data_shard, int32_t slot) const;
  // Tokens in merged contributions. A contribution to one of P fragments counts
  // 1/P of its island's tokens. Only the sum is rounded down to whole tokens.
  int64_t merged_token_count() const { return MergedTokenCountWith(0); }
  // The same after a merge of `more` tokens into one fragment.
  int64_t MergedTokenCountWith(int64_t more) const;

  // --- Guard ---
  // The fragment that has left the run's band for the longest; nullptr: none has.
  const storage::v1::FragmentGuard* FindHeld() const;
  // The guard found a commit or an evaluation outside the band and paused it.
  bool paused_by_guard() const { return state_.by_guard(); }
  // True if the guard looks at the evaluation: its island has no token, and no
  // operator has accepted its version. An island with a token can claim any loss.
  bool IsEvaluationTrusted(const v1::Evaluation& evaluation) const;
  // Losses of the island's newest evaluations that are inside the band.
  // Requires: created.
  std::vector<double> ListLossesBy(const std::string& island_id) const;

  // --- Restores ---
  // The newest ones, oldest first; the last one began run_epoch().
  const std::deque<v1::Restore>& restores() const { return restores_; }
  // The cut of the newest restore, in the order of fragments.
  const std::vector<v1::FragmentVersion>& restored_cut() const {
    return restored_cut_;
  }
  // True from a restore to the next commit.
  bool just_restored() const {
    return !restores_.empty() && restores_.back().commit_seq() == commit_seq_;
  }
  // The point of the present cut, for a restore to it.
  storage::v1::RestorePoint MakeRestorePoint() const;

  // --- Cuts ---
  // By pin_id: the cuts that shards must keep.
  const std::map<std::string, storage::v1::PinSnapshot>& pins() const {
    return pins_;
  }

  // --- Evaluations ---
  // The slots that take turns to evaluate the version that `open`, of fragment
  // 0, makes, in order. A join token says nothing of who holds it, so they are
  // the slots of `open` without a token; if it has none, those of all present
  // members without a token; otherwise all of `open`.
  std::vector<int32_t> ListEvaluators(const v1::OpenRound& open) const;
  // True if the member's unpushed work is not counted yet: it comes after all
  // that is, its version exists or is the next one, and its contribution has no
  // outcome and is not the newest counted one.
  bool IsUncounted(const Member& member, const v1::UnpushedWork& work) const;
  // True if the member was asked to evaluate the version, which exists. Async
  // islands evaluate what they hold in their turn: at most one version in as
  // many periods (EvaluationSpec.every_round_count) as islands take turns.
  bool IsAskedToEvaluate(const Member& member, int64_t version) const;

  // --- History ---
  // Commits below this have no rows in the history; 0: all have.
  int64_t history_begin() const { return history_begin_; }
  // Also true of versions older than the newest kEvaluationsMax known ones.
  bool IsEvaluated(int64_t version) const {
    return version < evaluations_begin_ || evaluations_.contains(version);
  }
  // The newest evaluation that has a loss, and the newest of a newer version,
  // which failed. nullptr: none is known.
  const v1::Evaluation* newest_evaluation() const;
  const v1::Evaluation* newest_failed_evaluation() const;
  // One point per commit: loss of the islands, norm of the outer gradient. One
  // point per evaluation that did not fail: its loss.
  const std::deque<v1::MetricPoint>& loss_points() const {
    return loss_points_;
  }
  const std::deque<v1::MetricPoint>& norm_points() const {
    return norm_points_;
  }
  const std::deque<v1::MetricPoint>& evaluation_points() const {
    return evaluation_points_;
  }

  // The whole state as text, for tests that compare states.
  std::string DebugString() const;

 private:
  absl::Status ApplyCreated(const storage::v1::RunCreated& body,
                            absl::Time time);
  absl::Status ApplyStarted(const storage::v1::RunStarted& body);
  absl::Status ApplyMember(const storage::v1::MemberSet& body, absl::Time time);
  absl::Status ApplyOpened(const v1::OpenRound& body, absl::Time time);
  absl::Status ApplySealed(const storage::v1::RoundSealed& body,
                           absl::Time time);
  absl::Status ApplyJudged(const storage::v1::RoundJudged& body);
  absl::Status ApplyCommitted(const storage::v1::RoundCommitted& body,
                              absl::Time time);
  absl::Status ApplyRestored(const storage::v1::RunRestored& body,
                             absl::Time time);
  absl::Status ApplyAborted(const storage::v1::RoundAborted& body,
                            absl::Time time);
  // `open` was committed: notes who evaluates what it made.
  void NoteEvaluators(const v1::OpenRound& open);
  void ApplyEvaluated(const v1::Evaluation& evaluation, absl::Time time);
  // True if the evaluation ends what an earlier one outside the band began.
  bool IsInsideAndNewest(const v1::Evaluation& evaluation) const;
  void ApplyOutcome(const v1::ContributionOutcome& outcome,
                    const storage::v1::OutcomeWork& work, absl::Time time);
  void ApplyOutcomes(
      const google::protobuf::RepeatedPtrField<v1::ContributionOutcome>&
          outcomes,
      const google::protobuf::RepeatedPtrField<storage::v1::OutcomeWork>& work,
      absl::Time time);
  absl::Status ApplyUnpushed(const storage::v1::WorkUnpushed& body);
  // Elastic runs: what an outcome means for whether its island sits out.
  void NoteRefusal(const v1::ContributionOutcome& outcome, absl::Time time);
  void AdvanceData(const FragmentState& fragment);
  // Takes evaluations and points of superseded commits out.
  void DropSuperseded();
  // Charges the next commit's contributions to the pins that keep them.
  void CountKept(const FragmentState& fragment);
  absl::Status RestoreFragment(const storage::v1::FragmentSnapshot& snapshot);
  FragmentState* FindFragment(int32_t fragment);

  storage::v1::RunCreated created_;  // Without its spec.
  std::shared_ptr<const v1::RunSpec> spec_ =
      std::make_shared<const v1::RunSpec>();
  std::shared_ptr<const RunLayout> layout_;  // Shared by copies of the state.
  storage::v1::RunStateSet state_;
  int64_t revision_ = 0;
  absl::Time create_time_;
  absl::Time end_time_ = absl::InfiniteFuture();

  storage::v1::RunPlaced placed_;
  storage::v1::RunStarted started_;

  std::vector<Member> members_;
  std::map<std::string, int32_t> slots_;  // By island_id.

  std::vector<FragmentState> fragments_;
  int64_t commit_seq_ = 0;
  absl::Time last_commit_time_ = absl::InfinitePast();
  std::deque<storage::v1::CommitSnapshot> recent_commits_;
  std::vector<int64_t> persisted_commit_seqs_;
  OutcomeTable outcomes_;
  std::deque<v1::ContributionOutcome> dropped_;
  std::map<int32_t, int64_t> data_positions_;
  // Tokens in merged contributions, summed over fragments.
  int64_t fragment_token_count_ = 0;

  std::deque<v1::Restore> restores_;
  std::vector<v1::FragmentVersion> restored_cut_;

  std::map<std::string, storage::v1::PinSnapshot> pins_;

  // The slot that was asked to evaluate it, by version: the newest
  // kEvaluationsMax of fragment 0. Empty after an older program's snapshot.
  std::map<int64_t, int32_t> evaluator_by_version_;
  std::vector<int32_t> evaluator_slots_;  // The newest round's.
  std::map<int64_t, v1::Evaluation> evaluations_;  // By version; the newest.
  int64_t evaluations_begin_ = 0;  // Smaller versions count as evaluated.
  int64_t history_begin_ = 0;
  std::deque<v1::MetricPoint> loss_points_;
  std::deque<v1::MetricPoint> norm_points_;
  std::deque<v1::MetricPoint> evaluation_points_;
};

}  // namespace atl::coordinator
