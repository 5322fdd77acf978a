// The actions of an island: the vocabulary between IslandLoop and the code that
// performs them. Pure values.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"

namespace atl::worker {

enum class ActionKind {
  kWait,            // Until news; also for a backoff if failure_count > 0.
  kLoadSave,        // Read the local checkpoint; its contributions may be
                    // pushed from then on.
  kRestoreSave,     // The local checkpoint's state into the trainer; one step
                    // or record of it at a time.
  kResetOptimizer,  // Fresh optimizer state; a warm-up follows if `warm_up`.
                    // The first one of a later run_epoch also drops error
                    // feedback and contributions.
  kPull,            // `fragment` at `version`, checked against `digest`; may
                    // build on the anchor of `from_version`.
  kReportReady,     // Tell the coordinator that cut `commit_seq` is held.
  kBeginRound,      // Local parameters = anchors.
  kTrain,           // Inner steps: 1 to `step_count_max`, from `step`,
                    // `data_shard`, `data_position`.
  kContribute,      // Encode the outer gradients of `contributions` and save
                    // them; with `in_background` only copy what kSave needs.
  kSave,            // Encode and save what the kContribute of `seq` took.
  kPush,            // Contribution of `fragment` to all its shards.
  kApply,           // The anchor of `fragment`, `version`, to local parameters.
  kEvaluate,        // Evaluate the anchors on held-out tokens.
  kLeave,           // Tell the coordinator; best effort.
  kFinish,          // End with `status`.
};

const char* ActionName(ActionKind kind);

// The lane that does an action. A run in rounds uses only kTraining. In a
// streaming run the lanes run concurrently.
enum class Lane { kTraining, kPush, kPull, kSave };
inline constexpr int kLaneCount = 4;

// A fragment and the anchor version that its local values started from.
struct AnchoredFragment {
  int32_t fragment = 0;
  int64_t anchor_version = 0;
  friend bool operator==(const AnchoredFragment& a,
                         const AnchoredFragment& b) {
    return a.fragment == b.fragment && a.anchor_version == b.anchor_version;
  }
};

struct Action {
  ActionKind kind = ActionKind::kWait;
  std::string reason;

  int32_t fragment = 0;    // kPull, kPush, kApply.
  int64_t version = 0;  // kPull, kApply; kEvaluate, kTrain: of fragment 0.
  v1::Digest digest;       // kPull: of the fragment at that version.
  int64_t from_version = -1;  // kPull: the held anchor; -1: none.
  // kReportReady, kEvaluate, kPull; kResetOptimizer, kRestoreSave, kBeginRound:
  // IslandPlan.restored_commit_seq.
  int64_t commit_seq = 0;
  // kReportReady: the membership epoch and coordinator start it is meant for.
  int64_t island_epoch = 0;
  int64_t coordinator_epoch = 0;
  std::vector<v1::FragmentVersion> cut;  // kEvaluate.
  // kEvaluate: only give the trainer these parameters; the run is complete.
  bool only_show = false;
  // kEvaluate: only whether the loss of the anchors is finite; else the action
  // fails with NotFinite (base/status/not_finite.h).
  bool checks_anchors = false;

  int64_t step = 0;             // kTrain: step of the learning-rate schedule.
  int64_t step_count_max = 1;   // kTrain: until another action may be due.
  int64_t done_step_count = 1;  // kTrain, for OnDone(): the steps taken,
  int64_t done_token_count = 0;  // and their tokens.
  int32_t data_shard = 0;       // kTrain, kContribute.
  int64_t data_position = 0;    // kTrain: first window; kContribute: next.

  int64_t run_epoch = 0;  // IslandLoop's when it chose the action.
  int32_t slot = 0;       // kContribute, kPush.
  int64_t seq = 0;        // kContribute, kPush, kSave.
  // kContribute.
  std::vector<AnchoredFragment> contributions;
  int64_t step_count = 0;
  int64_t data_begin = 0;
  double weight = 1;  // This island's share of the merge, if all contribute.
  int64_t rate_offset = 0;  // Streaming: the new SaveSummary::rate_offset.
  bool in_background = false;  // kContribute: kSave encodes and saves.
  // kContribute, kApply: the next local checkpoint is a whole one, not a record
  // that follows one.
  bool whole_save = true;

  int64_t clock = 0;          // kApply: inner steps of the stream before it.
  bool adopt = false;         // kApply: replace the local values.
  // kRestoreSave, for OnDone(): do it again; and it took inner steps.
  bool unfinished = false;
  bool repeats_steps = false;
  bool needs_repush = false;  // kPush: a shard lost it; push even while paused.
  bool warm_up = false;       // kResetOptimizer.
  int failure_count = 0;      // kWait: failed attempts in a row.
  // kWait: as ReportProgressRequest.hindrance, but of any length.
  std::string hindrance;
  absl::Status status;        // kFinish.
};

inline Action MakeAction(ActionKind kind, std::string reason) {
  Action action;
  action.kind = kind;
  action.reason = std::move(reason);
  return action;
}

// An answer that a streaming run applied to its local parameters.
struct AppliedAnswer {
  int64_t clock = 0;  // Inner steps before it.
  int32_t fragment = 0;
  int64_t version = 0;
  bool adopt = false;
  friend bool operator==(const AppliedAnswer&, const AppliedAnswer&) = default;
};

// Training losses of steps, nats a token. A trainer tells the mean of the steps
// that it takes at once: it counts for each of them.
struct LossSum {
  double sum = 0;
  int64_t step_count = 0;  // Steps with a loss.

  void Add(std::optional<double> mean, int64_t count) {
    if (!mean.has_value() || count < 1) return;
    sum += *mean * static_cast<double>(count);
    step_count += count;
  }
  // nullopt: no step has a loss.
  std::optional<double> mean() const {
    if (step_count == 0) return std::nullopt;
    return sum / static_cast<double>(step_count);
  }
  friend bool operator==(const LossSum&, const LossSum&) = default;
};

// One fragment's local parameters in a streaming run's local checkpoint.
struct SavedTrack {
  int32_t fragment = 0;
  int64_t local_version = 0;  // The anchor's; in flight: before the answer.
  int64_t since_step = 0;     // Clock at the previous push, or at the begin.
  int64_t data_begin = 0;     // First window after that.
  int64_t seq = 0;            // The contribution in flight; 0: none.
  int64_t push_step = 0;      // Clock at its push.
  int64_t pushed_step_count = 0;  // Its inner steps; 0: not known.
  int64_t pushed_token_count = 0;  // Their tokens.
  int64_t token_count = 0;         // Read from data_begin to the save.
};

// The facts of a local checkpoint that the loop needs.
struct SaveSummary {
  std::string run_id;
  int64_t run_epoch = 0;
  int64_t island_epoch = 0;  // 0: not known.
  int32_t slot = 0;
  int64_t seq = 0;
  std::vector<AnchoredFragment> contributions;
  int64_t step_count = 0;   // The first contribution's; 0: not known.
  int64_t token_count = 0;  // The first contribution's.
  int32_t data_shard = 0;
  int64_t data_position = 0;  // Next window after the synchronisation.
  // Which slot evaluates `evaluator_version`: index and count of the open
  // round's slots; count 0 if unknown.
  int64_t evaluator_version = 0;
  int32_t evaluator_index = 0;
  int32_t evaluator_count = 0;
  // Streaming runs: the clock; learning-rate clock - clock; fragments in
  // order.
  int64_t clock = 0;
  int64_t rate_offset = 0;
  std::vector<SavedTrack> tracks;
  bool records_follow = false;  // A whole save's: later pushes have records.
  // Work that no answered report had then.
  std::vector<v1::UnpushedWork> unpushed;
};

}  // namespace atl::worker
