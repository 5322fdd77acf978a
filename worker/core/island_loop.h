// What an island does next: the inner/outer loop as a state machine.
//
// Pure: no thread, no clock, no I/O. Thread-compatible. Level-triggered: news
// (a join, a plan, a finished action) changes what is known, and Next() is a
// function of what is known. worker/DESIGN.md, "The loop", gives the order in
// which it looks, and why.
//
// The caller asks Next(), does that one action, says how it went with
// OnDone() (or OnSaveLoaded() after kLoadSave), and asks again. News may come
// at any time between.

#ifndef WORKER_CORE_ISLAND_LOOP_H_
#define WORKER_CORE_ISLAND_LOOP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

enum class ActionKind {
  kWait,            // For news; and if failure_count > 0 for a backoff too.
  kLoadSave,        // Read the SAVE; answer with OnSaveLoaded().
  kRestoreSave,     // Optimizer state of the SAVE into the trainer.
  kResetOptimizer,  // Fresh optimizer state; with a warm-up if `warm_up`.
  kPull,            // `fragment` at `version`, checked against `digest`; the
                    // anchor of `from_version` may be built on.
  kReportReady,     // Tell the coordinator that cut `commit_seq` is held.
  kBeginRound,      // Local parameters = anchors.
  kTrain,           // One inner step: `step`, `data_shard`, `data_position`.
  kContribute,      // Outer gradients of `contributions`, encoded, in a SAVE.
  kPush,            // Contribution of `fragment` to all its shards.
  kEvaluate,        // The anchors, on held-out tokens.
  kLeave,           // Tell the coordinator; best effort.
  kFinish,          // The end: `status`.
};

// Lower case, for logs and traces: "begin_round".
const char* ActionName(ActionKind kind);

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

  int32_t fragment = 0;    // kPull, kPush.
  int64_t version = 0;     // kPull; kEvaluate: of fragment 0.
  v1::Digest digest;       // kPull: of the fragment at that version.
  int64_t from_version = -1;  // kPull: the anchor that is held; -1: none.
  int64_t commit_seq = 0;  // kReportReady, kEvaluate.

  int64_t step = 0;           // kTrain: clock of the learning rate.
  int32_t data_shard = 0;     // kTrain, kContribute.
  int64_t data_position = 0;  // kTrain: first window; kContribute: the next.

  // kContribute; kPush: seq only.
  int64_t seq = 0;
  int64_t run_epoch = 0;
  int32_t slot = 0;
  std::vector<AnchoredFragment> contributions;
  int64_t step_count = 0;
  int64_t data_begin = 0;

  bool needed_again = false;  // kPush: a shard lost it; also while paused.
  bool warm_up = false;       // kResetOptimizer.
  int failure_count = 0;      // kWait: attempts in a row that failed.
  absl::Status status;        // kFinish.
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
};

class IslandLoop {
 public:
  // Failures of a push that a stopping island puts up with before it leaves.
  static constexpr int kStopFailuresMax = 3;

  explicit IslandLoop(std::string run_id) : run_id_(std::move(run_id)) {}

  // --- News ---

  // A Join was answered, the first or a later one.
  void OnJoined(const v1::JoinResponse& response);
  // A plan came. Older ones than the newest seen are dropped.
  void OnPlan(const v1::IslandPlan& plan);
  // The control connection went down or came up.
  void OnConnection(bool up) { connected_ = up; }
  // The run cannot be taken part in: refused, fenced, never reached.
  void OnRefused(absl::Status status);
  // First: leave cleanly. Second: finish at once.
  void OnStopRequested() { ++stop_count_; }
  // The backoff of a kWait with failure_count > 0 is over.
  void OnWaited() { backing_off_ = false; }
  // kLoadSave was done; nullopt: there is none that can be read.
  void OnSaveLoaded(std::optional<SaveSummary> save);
  // Any other action was done.
  void OnDone(const Action& action, const absl::Status& status);

  // --- What to do ---

  Action Next() const;

  // --- To look at ---

  bool joined() const { return joined_; }
  // What became of this island's contribution `key`, if it is still told.
  v1::Outcome OutcomeOf(const v1::ContributionKey& key) const;
  // Whose turn it is to evaluate the version that the round under way makes.
  // For the SAVE.
  SaveSummary EvaluatorOf(int64_t version) const;
  const v1::IslandPlan& plan() const { return plan_; }
  const v1::RunSpec& spec() const { return spec_; }

 private:
  // Training from the anchors, up to its contribution.
  struct Round {
    std::vector<AnchoredFragment> fragments;
    int64_t start_step = 0;
    int64_t planned_step_count = 0;
    int64_t done_step_count = 0;
    int32_t data_shard = 0;
    int64_t data_begin = 0;
  };
  // A contribution that is saved and not decided in all fragments.
  struct Sync {
    struct Part {
      AnchoredFragment at;
      bool pushed = false;
      bool refused = false;
    };
    int64_t seq = 0;
    std::vector<Part> parts;
  };
  struct Evaluator {
    int32_t index = -1;  // Of this slot among the open round's; -1: not in it.
    int32_t count = 0;
  };

  int64_t CutVersion(int32_t fragment) const;
  int64_t CutCommitSeq() const;
  bool ReadyReported() const;
  const v1::OpenRound* FindOpen(int32_t fragment, int64_t version) const;
  const v1::SlotPlan* FindSlot(const v1::OpenRound& open) const;
  v1::Outcome OutcomeOf(int32_t fragment, int64_t seq) const;
  bool PartDecided(const Sync& sync, const Sync::Part& part) const;
  // True if the plan says that a shard has lost it.
  bool NeededAgain(const Sync& sync, const Sync::Part& part) const;
  bool Away() const;

  // After an action.
  void OnPushed(const Action& action, const absl::Status& status);
  void OnBegun();
  // Ends with `status`, and tells the coordinator.
  void LeaveWith(const absl::Status& status);
  void OnTrained(const Action& action, const absl::Status& status);
  void OnContributed(const Action& action);

  // After any news: drops what the plan has overtaken.
  void Settle();
  void SettleSync();
  void SettleRound();
  void DropAll();
  void ReconcileSave(const SaveSummary& save);
  void NoteOpenRounds();

  std::optional<Action> NextEnd() const;
  std::optional<Action> NextStop() const;
  std::optional<Action> NextSync() const;
  std::optional<Action> NextInRound() const;
  std::optional<Action> NextPull() const;
  std::optional<Action> NextWhenHeld() const;
  std::optional<Action> NextEvaluation() const;
  Action NextBegin() const;
  std::optional<Round> ChooseRound() const;
  bool PullWanted() const;
  bool EvaluationDue() const;
  bool HeldAll() const;
  // The version that an evaluation would be of.
  int64_t EvaluatedVersion() const;

  // What async runs do otherwise: island_loop_async.cc.
  bool async() const;
  // True if no version can take a contribution from this anchor any more.
  bool Moot(const AnchoredFragment& at) const;
  // True if it ended so that its optimizer is not to be carried on.
  bool DecidedAgainst(const Sync& sync, const Sync::Part& part) const;
  // True if `fragment` is held as new as the next round needs it.
  bool HeldEnough(int32_t fragment) const;
  void NoteWanted();
  std::optional<Round> ChooseAsyncRound() const;
  bool AsyncEvaluationDue() const;

  Action Wait(std::string reason) const;

  const std::string run_id_;
  bool joined_ = false;
  bool connected_ = false;
  int stop_count_ = 0;
  bool left_ = false;
  bool leave_due_ = false;  // Before a finish with `refused_`.
  std::optional<absl::Status> refused_;

  v1::RunSpec spec_;
  v1::IslandPlan plan_;
  std::vector<v1::ContributionOutcome> join_outcomes_;
  int32_t slot_ = -1;
  int64_t run_epoch_ = 0;
  int64_t island_epoch_ = 0;
  int64_t next_seq_ = 1;

  bool save_looked_at_ = false;
  bool restore_due_ = false;
  bool reset_due_ = false;
  // Position of its own in a data shard; none: the plan's counts.
  std::optional<std::pair<int32_t, int64_t>> position_;

  std::vector<int64_t> held_;  // Version of each anchor; -1: none.
  int64_t held_commit_seq_ = 0;  // The newest that was pulled.
  // Async: the cut when the round or contribution before was settled; empty
  // while one is under way.
  std::vector<int64_t> wanted_;
  std::optional<Round> round_;
  std::optional<Sync> sync_;
  // (island_epoch, coordinator_epoch) that was last reported ready.
  std::pair<int64_t, int64_t> ready_reported_{0, 0};
  std::map<int64_t, Evaluator> evaluators_;  // By the version that is made.
  int64_t evaluated_version_ = 0;

  bool backing_off_ = false;
  int failure_count_ = 0;
};

}  // namespace atl::worker

#endif  // WORKER_CORE_ISLAND_LOOP_H_
