// What an island does: the words between its loop and its shell.
//
// Pure values.

#ifndef WORKER_CORE_ACTION_H_
#define WORKER_CORE_ACTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/plan.pb.h"

namespace atl::worker {

enum class ActionKind {
  kWait,            // For news; and if failure_count > 0 for a backoff too.
  kLoadSave,        // Read the SAVE; answer with OnSaveLoaded(). From then on
                    // its contributions may be pushed.
  kRestoreSave,     // State of the SAVE into the trainer.
  kResetOptimizer,  // Fresh optimizer state; with a warm-up if `warm_up`.
  kPull,            // `fragment` at `version`, checked against `digest`; the
                    // anchor of `from_version` may be built on.
  kReportReady,     // Tell the coordinator that cut `commit_seq` is held.
  kBeginRound,      // Local parameters = anchors.
  kTrain,           // One inner step: `step`, `data_shard`, `data_position`.
  kContribute,      // Outer gradients of `contributions`, encoded, in a SAVE;
                    // or, with `beside`, what kSave needs to do that.
  kSave,            // Encodes what the kContribute of `seq` took, in a SAVE.
  kPush,            // Contribution of `fragment` to all its shards.
  kApply,           // The anchor of `fragment`, `version`, to local parameters.
  kEvaluate,        // The anchors, on held-out tokens.
  kLeave,           // Tell the coordinator; best effort.
  kFinish,          // The end: `status`.
};

// Lower case, for logs and traces: "begin_round".
const char* ActionName(ActionKind kind);

// Who does an action. A run in rounds uses the first alone; in a streaming run
// pushes, pulls, and where answers overlap with steps encoding, too, go on
// beside training.
enum class Lane { kTraining, kPush, kPull, kSave };
inline constexpr int kLaneCount = 4;

// A fragment of a synchronisation.
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
  std::string reason;  // In a few words, for people.

  int32_t fragment = 0;    // kPull, kPush, kApply.
  int64_t version = 0;     // kPull, kApply; kEvaluate: of fragment 0.
  v1::Digest digest;       // kPull: of the fragment at that version.
  int64_t from_version = -1;  // kPull: the anchor that is held; -1: none.
  int64_t commit_seq = 0;     // kReportReady, kEvaluate, kPull.
  // kReportReady: the life and the coordinator that it is for.
  int64_t island_epoch = 0;
  int64_t coordinator_epoch = 0;
  std::vector<v1::FragmentVersion> cut;  // kEvaluate: of what.

  int64_t step = 0;           // kTrain: clock of the learning rate.
  int32_t data_shard = 0;     // kTrain, kContribute.
  int64_t data_position = 0;  // kTrain: first window; kContribute: the next.

  int64_t run_epoch = 0;  // kContribute, kPush, kPull.
  int32_t slot = 0;       // kContribute, kPush.
  int64_t seq = 0;        // The same, and kSave.
  // kContribute.
  std::vector<AnchoredFragment> contributions;
  int64_t step_count = 0;
  int64_t data_begin = 0;
  double weight = 1;  // This island's share, if all contribute.
  int64_t rate_offset = 0;  // Streaming: SaveSummary::rate_offset from then on.
  bool in_background = false;  // Encoding and SAVE are kSave's.

  bool adopt = false;         // kApply: nothing of the local values is kept.
  bool needs_repush = false;  // kPush: a shard lost it; also while paused.
  bool warm_up = false;       // kResetOptimizer.
  int failure_count = 0;      // kWait: attempts in a row that failed.
  absl::Status status;        // kFinish.
};

inline Action MakeAction(ActionKind kind, std::string reason) {
  Action action;
  action.kind = kind;
  action.reason = std::move(reason);
  return action;
}

// What local parameters of one fragment come from, in a SAVE of a streaming
// run.
struct SavedTrack {
  int32_t fragment = 0;
  int64_t local_version = 0;  // Of the anchor; of a flight: the one before.
  int64_t since_step = 0;     // Clock at the push before, or at the begin.
  int64_t data_begin = 0;     // First window after that.
  int64_t seq = 0;            // Of the contribution in flight; 0: there is none.
  int64_t push_step = 0;      // Clock at its push.
};

// What the loop needs to know of a SAVE.
struct SaveSummary {
  std::string run_id;
  int64_t run_epoch = 0;
  int32_t slot = 0;
  int64_t seq = 0;
  std::vector<AnchoredFragment> contributions;
  int32_t data_shard = 0;
  int64_t data_position = 0;  // Next window after the synchronisation.
  // Who evaluates the version after: index and count of the open round's
  // slots; count 0 if unknown.
  int64_t evaluator_version = 0;
  int32_t evaluator_index = 0;
  int32_t evaluator_count = 0;
  // Of a streaming run: its clock, what the learning rate's is ahead of it (or
  // behind, if negative), and every fragment in order.
  int64_t clock = 0;
  int64_t rate_offset = 0;
  std::vector<SavedTrack> tracks;
};

}  // namespace atl::worker

#endif  // WORKER_CORE_ACTION_H_
