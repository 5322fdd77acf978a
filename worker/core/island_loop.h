// Decides what an island does next: the inner/outer loop as a state machine.
//
// Pure: no thread, no clock, no I/O. Thread-compatible. Level-triggered: news
// (a join, a plan, a finished action) changes the known state, and Next() is a
// function of it. worker/DESIGN.md, "The loop", gives its order and why.
//
// The caller asks Next(), does that one action, reports the result with
// OnDone() (OnSaveLoaded() after kLoadSave), and asks again. News may come at
// any time. In a streaming run (stream.h) the caller does this for each lane
// concurrently. OnStarted() keeps a lane from an anchor that another lane uses.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "worker/core/action.h"
#include "worker/core/plan_view.h"
#include "worker/core/recovery.h"
#include "worker/core/stream.h"

namespace atl::worker {

class IslandLoop {
 public:
  // Failed pulls after the run's end before the trainer keeps what it has.
  static constexpr int kShowFailuresMax = 3;
  // Failed pushes that a stopping island tolerates before it leaves.
  static constexpr int kStopFailuresMax = 3;
  // Tries of a step without its data after which a finish gives the round up:
  // half a minute.
  static constexpr int kFinishTriesMax = 10;

  explicit IslandLoop(std::string run_id) : run_id_(std::move(run_id)) {}

  // After the run's end the trainer gets the run's parameters.
  void set_shows_end(bool shows_end) { shows_end_ = shows_end; }

  // --- News ---

  // The answer to a Join. Called after every Join.
  void OnJoined(const v1::JoinResponse& response);
  // Drops plans older than the newest one seen. A plan of a later run_epoch
  // tells of a restore: the island drops all that it has, also the results of
  // actions that run, and starts afresh from the plan's cut.
  void OnPlan(const v1::IslandPlan& plan);
  // `why` is set while the coordinator does not accept this island for an
  // unknown time: every wait names it.
  void OnConnection(bool up, std::string why = "");
  // The island was refused or fenced, or never reached the coordinator.
  void OnRefused(absl::Status status);
  // First: leave cleanly. Second: finish at once.
  void OnStopRequested() { ++stop_count_; }
  // The island's user pauses it for `reason`: it begins no inner step, no round
  // and no evaluation. Transfers continue. Empty: it may train.
  void OnHold(std::string reason) { hold_ = std::move(reason); }
  // The island's user ends it: it begins no other round, contributes the one in
  // progress (unless it is on hold, or its data does not come), waits for the
  // outcome, and leaves. A streaming run: it trains to its next contribution,
  // and waits until nothing is in flight.
  void OnFinish() { finishing_ = true; }
  // The island leaves: it gives up its round and what it has not pushed.
  void OnLeaving();
  // The backoff of a kWait with failure_count > 0 is over.
  void OnWaited(Lane lane = Lane::kTraining) {
    lanes_[Index(lane)].backing_off = false;
  }
  // A file that an action awaited (data_awaited.h) is here, or cannot come.
  void OnDataCame();
  // `save` is nullopt if there is no readable local checkpoint.
  void OnSaveLoaded(std::optional<SaveSummary> save);
  void OnDone(const Action& action, const absl::Status& status);
  // A lane begins its action. Only where lanes run concurrently; no other call
  // may come between this and the Next() that returned the action.
  void OnStarted(Lane lane, const Action& action);

  Action Next(Lane lane = Lane::kTraining) const;

  bool joined() const { return joined_; }
  // Has left the run, perhaps without the final versions.
  bool left() const { return left_; }
  bool connected() const { return connected_; }
  // Joined, and in this membership the coordinator knows that the island holds
  // a cut.
  bool ready() const {
    return joined_ && ready_reported_.first == island_epoch_;
  }
  // The run's epoch, as far as the island knows.
  int64_t run_epoch() const { return run_epoch_; }
  // The work that ended without a push, or was restored, since the last call,
  // each fragment's in the order of versions.
  std::vector<v1::UnpushedWork> TakeUnpushed();
  // UNSPECIFIED if the plan does not name this island's contribution `key`.
  v1::Outcome FindOutcome(const v1::ContributionKey& key) const;
  // True if the contribution `seq` of `at` needs nothing more from us.
  bool IsDecided(const AnchoredFragment& at, int64_t seq) const;
  // Returns which slot evaluates `version`, for the local checkpoint.
  SaveSummary FindEvaluator(int64_t version) const;
  // The summary for the local checkpoint of `contribute`, a streaming run's.
  SaveSummary StreamSave(const Action& contribute) const;
  // True while a contribution is taken and not saved; until then its error
  // feedback must not change.
  bool saving() const {
    return stream_.Unsaved() || lanes_[Index(Lane::kSave)].running.has_value();
  }
  // For displays: its user has paused it; its next step lacks data; `lane` does
  // an action (OnStarted).
  bool on_hold() const { return !hold_.empty(); }
  bool awaits_data() const {
    return !lanes_[Index(Lane::kTraining)].awaited.empty();
  }
  bool IsBusy(Lane lane) const {
    return lanes_[Index(lane)].running.has_value();
  }
  // True for a streaming run. Requires: joined.
  bool streaming() const;
  const v1::IslandPlan& plan() const { return plan_; }
  const v1::RunSpec& spec() const { return spec_; }

 private:
  // Training from the anchors, up to the contribution.
  struct Round {
    std::vector<AnchoredFragment> fragments;
    int64_t start_step = 0;
    int64_t planned_step_count = 0;
    int64_t done_step_count = 0;
    int64_t done_token_count = 0;
    int32_t data_shard = 0;
    int64_t data_begin = 0;
  };
  // A contribution that is saved, with an undecided outcome in some fragment.
  struct Sync {
    struct Part {
      AnchoredFragment at;
      bool pushed = false;
      bool refused = false;
    };
    int64_t seq = 0;
    std::vector<Part> parts;
    int64_t step_count = 0;   // 0: not known.
    int64_t token_count = 0;
  };
  struct Evaluator {
    int32_t index = -1;  // This slot's among those that take turns; -1: none.
    int32_t count = 0;
  };

  // Retry state of a lane, and the action that it runs.
  struct LaneState {
    bool backing_off = false;
    int failure_count = 0;
    std::string awaited;  // Why the data is not here; empty: not awaited.
    std::string awaited_file;  // Empty: not known.
    int64_t data_seen = 0;  // data_count_ when the running action began.
    std::optional<Action> running;
  };
  static size_t Index(Lane lane) { return static_cast<size_t>(lane); }
  Lane FindLane(ActionKind kind) const;

  PlanView View() const {
    return {spec_, plan_, join_outcomes_, slot_, run_epoch_};
  }
  bool ReadyReported() const;
  bool Away() const;

  // The action's result is of an earlier run_epoch.
  void OnStale(const Action& action, const absl::Status& status);
  void OnPushed(const Action& action, const absl::Status& status);
  void OnBegun();
  // The local parameters are lost; `status` is NotFinite.
  void OnNotFinite(const absl::Status& status);
  // Tells the coordinator, then ends with `status`.
  void LeaveWith(ActionKind kind, const absl::Status& status);
  void OnTrained(const Action& action, const absl::Status& status);
  void OnContributed(const Action& action);

  // After any news: drops what the plan has overtaken.
  void Settle();
  void SettleSync();
  void SettleRound();
  void SettleRecovery();
  // These turn steps that no shard has into unpushed work.
  void GiveUpRound();
  // `is_restored`: the coordinator may not have learned of pushed ones.
  void GiveUpSync(bool is_restored = false);
  void GiveUpStream(bool is_restored = false);
  void NoteUnpushed(v1::UnpushedWork work);
  void DropAll(bool is_restored = false);
  // The run was restored: `run_epoch` begins.
  void StartAfresh(int64_t run_epoch);
  void ReconcileSave(const SaveSummary& save);
  void TakeFrom(const SaveSummary& save);
  void NoteOpenRounds();

  // Streaming runs: island_loop_streaming.cc.
  Action NextInLane(Lane lane) const;
  Action NextStreaming() const;
  Action NextInFinishingStream() const;
  Action NextPushLane() const;
  Action NextPullLane() const;
  Action NextSaveLane() const;
  // True if another lane reads or writes the anchor of `fragment` (-1: any).
  bool AnchorBusy(Lane lane, int32_t fragment) const;
  void OnAppliedInStream(const Action& action);

  std::optional<Action> NextEnd() const;
  std::optional<Action> NextStop() const;
  Action WaitOnHold() const;
  // True if a finish gives up steps whose data does not come.
  bool LacksDataToFinish() const;
  std::optional<Action> NextSync() const;
  std::optional<Action> NextInRound() const;
  std::optional<Action> NextPull() const;
  Action MakePull(int32_t fragment) const;
  Action ReadyReport(std::string reason) const;
  Action OptimizerReset() const;
  std::optional<Action> NextWhenHeld() const;
  std::optional<Action> NextEvaluation() const;
  Action NextRecovery() const;
  Action MakeEvaluation(std::string reason) const;
  Action NextBegin() const;
  std::optional<Round> ChooseRound() const;
  bool PullWanted() const;
  bool EvaluationDue() const;
  bool ShowDue() const;
  bool HeldAll() const;
  Action Wait(std::string reason, Lane lane = Lane::kTraining) const;
  Action NextInTraining() const;
  // The smallest commit_seq of a cut that the island may report.
  int64_t HeldCommitSeq() const;
  int64_t EvaluatedVersion() const;

  // Async runs: island_loop_async.cc.
  bool async() const;
  // True if no later version can take a contribution from this anchor.
  bool Obsolete(const AnchoredFragment& at) const;
  // True if its outcome means that the optimizer state must be reset.
  bool DecidedAgainst(const Sync& sync, const Sync::Part& part) const;
  // True if `fragment` is held as new as the next round needs it.
  bool HeldEnough(int32_t fragment) const;
  void NoteWanted();
  std::optional<Round> ChooseAsyncRound() const;
  bool AsyncEvaluationDue() const;

  const std::string run_id_;
  bool joined_ = false;
  bool connected_ = false;
  std::string away_reason_;
  int stop_count_ = 0;
  std::string hold_;  // Why it is on hold; empty: it is not.
  bool finishing_ = false;
  bool last_contributed_ = false;  // Streaming: after OnFinish().
  bool left_ = false;
  // The coordinator gets it before a finish with `refused_`; may be empty.
  std::string leave_reason_;
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
  // Own position in a data shard; nullopt: use the plan's.
  std::optional<std::pair<int32_t, int64_t>> position_;

  std::vector<int64_t> held_;  // Version of each anchor; -1: none.
  int64_t held_commit_seq_ = 0;  // The newest that was pulled.
  // Async: the cut when the last round or contribution ended; empty in one.
  std::vector<int64_t> wanted_;
  std::optional<Round> round_;
  std::optional<Sync> sync_;
  std::vector<v1::UnpushedWork> unpushed_;
  int64_t unpushed_number_ = 0;  // The newest piece has it.
  // (island_epoch, coordinator_epoch) of the last ready report.
  std::pair<int64_t, int64_t> ready_reported_{0, 0};
  std::map<int64_t, Evaluator> evaluators_;  // By the version that is made.
  int64_t evaluated_version_ = 0;
  bool shows_end_ = false;
  bool shown_ = false;

  Recovery recovery_;
  // The anchors of the local parameters; empty once a step is taken.
  std::vector<int64_t> begun_from_;

  Stream stream_;
  bool ready_failed_ = false;  // Retried after the next news.
  int64_t data_count_ = 0;     // Calls of OnDataCame.
  std::array<LaneState, kLaneCount> lanes_;
};

}  // namespace atl::worker
