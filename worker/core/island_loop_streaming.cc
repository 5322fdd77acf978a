#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/layout/fragment_schedule.h"
#include "worker/core/island_loop.h"

// Streaming runs, in the order of worker/DESIGN.md, "Streaming".

namespace atl::worker {
namespace {

// True if the action reads or writes the anchor of `fragment` (-1: any).
bool Touches(const Action& action, int32_t fragment) {
  switch (action.kind) {
    case ActionKind::kRestoreSave:
    case ActionKind::kBeginRound:
    case ActionKind::kEvaluate:
      return true;
    case ActionKind::kPull:
    case ActionKind::kApply:
      return fragment < 0 || action.fragment == fragment;
    case ActionKind::kContribute:
      return std::any_of(action.contributions.begin(),
                         action.contributions.end(),
                         [&](const AnchoredFragment& at) {
                           return fragment < 0 || at.fragment == fragment;
                         });
    default:
      return false;
  }
}

}  // namespace

bool IslandLoop::streaming() const {
  return joined_ && IsStreaming(spec_.schedule());
}

Lane IslandLoop::FindLane(ActionKind kind) const {
  if (streaming() && kind == ActionKind::kPush) return Lane::kPush;
  if (streaming() && kind == ActionKind::kPull) return Lane::kPull;
  if (streaming() && kind == ActionKind::kSave) return Lane::kSave;
  return Lane::kTraining;
}

void IslandLoop::OnStarted(Lane lane, const Action& action) {
  lanes_[Index(lane)].running = action;
  lanes_[Index(lane)].data_seen = data_count_;
}

bool IslandLoop::AnchorBusy(Lane lane, int32_t fragment) const {
  for (size_t other = 0; other < lanes_.size(); ++other) {
    if (other == Index(lane) || !lanes_[other].running.has_value()) continue;
    if (Touches(*lanes_[other].running, fragment)) return true;
  }
  return false;
}

void IslandLoop::OnAppliedInStream(const Action& action) {
  begun_from_.clear();
  if (position_.has_value()) stream_.OnApplied(View(), action, *position_);
}

SaveSummary IslandLoop::StreamSave(const Action& contribute) const {
  SaveSummary save = FindEvaluator(View().CutVersion(0) + 1);
  save.island_epoch = island_epoch_;
  if (stream_.begun()) stream_.AddTo(save, contribute);
  return save;
}

Action IslandLoop::NextStreaming() const {
  if (lanes_[0].backing_off && !LacksDataToFinish()) {
    return Wait("the last attempt failed");
  }
  const bool anchors_are_free = !AnchorBusy(Lane::kTraining, -1);
  const bool evaluate = HeldAll() && EvaluationDue() && anchors_are_free;
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) {
    if (evaluate || (HeldAll() && ShowDue() && anchors_are_free)) {
      return *NextEvaluation();
    }
    if (EvaluationDue()) return Wait("pulling the version to evaluate");
    if (ShowDue() &&
        (!anchors_are_free || stream_.NextPull(View(), held_) >= 0)) {
      return Wait("pulling the run's parameters");
    }
    return Action{ActionKind::kFinish, "the run is complete"};
  }
  if (finishing_ && (!stream_.begun() || last_contributed_ || !hold_.empty() ||
                     LacksDataToFinish())) {
    return NextInFinishingStream();
  }
  // A member that restarts from a local checkpoint is ready at once.
  if (!ReadyReported() && connected_ && !ready_failed_ &&
      (stream_.begun() || (HeldAll() && !reset_due_))) {
    return ReadyReport(stream_.begun() ? "contributions are out"
                                       : "the newest cut is held");
  }
  // A restore may repeat steps.
  if (!hold_.empty() && (restore_due_ || !stream_.begun())) return WaitOnHold();
  if (restore_due_) {
    if (!anchors_are_free) return Wait("a pull is not over");
    return MakeAction(ActionKind::kRestoreSave,
                      "the local checkpoint fits the plan");
  }
  if (!stream_.begun() && !HeldAll()) return Wait("pulling the newest cut");
  if (reset_due_) {
    // A save that began before a restore uses what the reset drops.
    const std::optional<Action>& save = lanes_[Index(Lane::kSave)].running;
    if (save.has_value() && save->run_epoch < run_epoch_) {
      return Wait("a save from before the restore is not over");
    }
    return OptimizerReset();
  }
  if (plan_.run_state() == v1::RUN_STATE_PAUSED) {
    return Wait("the run is paused");
  }
  if (evaluate) return *NextEvaluation();
  if (recovery_.is_held()) return NextRecovery();
  if (!stream_.begun()) {
    return stream_.CanBegin(View()) && anchors_are_free
               ? MakeAction(ActionKind::kBeginRound,
                            "a round expects this island")
               : Wait("no round expects this island yet");
  }
  Action action = stream_.NextTraining(View(), held_, *position_);
  if (action.kind == ActionKind::kTrain && !hold_.empty()) return WaitOnHold();
  if (action.kind == ActionKind::kWait && finishing_ &&
      !stream_.InFlight(View())) {
    return NextInFinishingStream();
  }
  if (action.kind != ActionKind::kContribute) return action;
  // A save of a stream that was dropped meanwhile still runs.
  if (saving()) return Wait("the previous contribution is being saved");
  action.seq = next_seq_;
  return action;
}

// The island makes no further contribution.
Action IslandLoop::NextInFinishingStream() const {
  if (stream_.InFlight(View())) {
    return Wait("finishing: waiting for the outcome of its contributions");
  }
  return MakeAction(ActionKind::kLeave, "its user has asked it to finish");
}

Action IslandLoop::NextInLane(Lane lane) const {
  if (!streaming()) return Wait("the run has no such lane", lane);
  if (left_ || refused_.has_value() || stop_count_ >= 2 || !save_looked_at_ ||
      plan_.cut_size() == 0 ||
      plan_.run_state() == v1::RUN_STATE_CANCELLED ||
      plan_.run_state() == v1::RUN_STATE_STARTING) {
    return Wait("there is nothing to do", lane);
  }
  switch (lane) {
    case Lane::kPush:
      return NextPushLane();
    case Lane::kPull:
      return NextPullLane();
    default:
      return NextSaveLane();
  }
}

Action IslandLoop::NextSaveLane() const {
  std::optional<Action> action = stream_.NextSave();
  if (!action.has_value() || plan_.run_state() == v1::RUN_STATE_COMPLETED) {
    return Wait("there is nothing to save", Lane::kSave);
  }
  if (lanes_[Index(Lane::kSave)].backing_off) {
    return Wait("a save failed", Lane::kSave);
  }
  return *std::move(action);
}

Action IslandLoop::NextPushLane() const {
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED || !stream_.begun()) {
    return Wait("there is nothing to push", Lane::kPush);
  }
  std::optional<Action> action = stream_.NextPush(View());
  if (!action.has_value()) {
    return Wait("there is nothing to push", Lane::kPush);
  }
  if (lanes_[Index(Lane::kPush)].backing_off) {
    return Wait("a push failed", Lane::kPush);
  }
  return *std::move(action);
}

Action IslandLoop::NextPullLane() const {
  const bool wanted = plan_.run_state() != v1::RUN_STATE_COMPLETED ||
                      EvaluationDue() || ShowDue();
  // A run that is complete restores nothing, but may owe an evaluation.
  if (restore_due_ && plan_.run_state() != v1::RUN_STATE_COMPLETED) {
    return Wait("the local checkpoint comes first", Lane::kPull);
  }
  const int32_t f =
      wanted && stop_count_ == 0 ? stream_.NextPull(View(), held_) : -1;
  if (f < 0) return Wait("every anchor is the newest", Lane::kPull);
  if (lanes_[Index(Lane::kPull)].backing_off) {
    return Wait("a pull failed", Lane::kPull);
  }
  if (AnchorBusy(Lane::kPull, f)) {
    return Wait("the anchor is being read", Lane::kPull);
  }
  return MakePull(f);
}

}  // namespace atl::worker
