#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "worker/core/island_loop.h"

// Next() for runs in rounds, in the order of worker/DESIGN.md, "The loop".

namespace atl::worker {
namespace {

constexpr char kFinished[] = "its user has asked it to finish";

Action Finish(absl::Status status, std::string reason) {
  Action action = MakeAction(ActionKind::kFinish, std::move(reason));
  action.status = std::move(status);
  return action;
}

}  // namespace

Action IslandLoop::Wait(std::string reason, Lane lane) const {
  Action action = MakeAction(ActionKind::kWait, std::move(reason));
  const LaneState& state = lanes_[Index(lane)];
  if (!away_reason_.empty()) {
    action.reason = absl::StrCat("waits for its coordinator: ", away_reason_);
  } else if (state.backing_off && !state.awaited.empty()) {
    action.reason = absl::StrCat("waits for data: ", state.awaited);
    action.hindrance =
        state.awaited_file.empty()
            ? "waits for a file of the run's data"
            : absl::StrCat("waits for the data file ", state.awaited_file);
  }
  if (state.backing_off) action.failure_count = state.failure_count;
  return action;
}

Action IslandLoop::Next(Lane lane) const {
  Action action =
      lane == Lane::kTraining ? NextInTraining() : NextInLane(lane);
  action.run_epoch = run_epoch_;
  if (action.kind == ActionKind::kResetOptimizer ||
      action.kind == ActionKind::kRestoreSave ||
      action.kind == ActionKind::kBeginRound) {
    action.commit_seq = plan_.restored_commit_seq();
  }
  return action;
}

Action IslandLoop::NextInTraining() const {
  if (auto action = NextEnd()) return *std::move(action);
  if (!joined_) return Wait("joining the run");
  if (!save_looked_at_) {
    return MakeAction(ActionKind::kLoadSave, "the process is new");
  }
  if (auto action = NextStop()) return *std::move(action);
  if (plan_.run_state() == v1::RUN_STATE_CANCELLED) {
    return Finish(Refuse(absl::StatusCode::kCancelled, "RUN_CANCELLED",
                         "the run was cancelled"),
                  "the run was cancelled");
  }
  if (plan_.run_state() == v1::RUN_STATE_STARTING || plan_.cut_size() == 0) {
    return Wait("the run is starting");
  }
  if (streaming()) return NextStreaming();
  if (auto action = NextSync()) return *std::move(action);
  if (lanes_[0].backing_off && !LacksDataToFinish()) {
    return Wait("the last attempt failed");
  }
  if (auto action = NextInRound()) return *std::move(action);
  if (finishing_) return MakeAction(ActionKind::kLeave, kFinished);
  if (auto action = NextPull()) return *std::move(action);
  if (auto action = NextWhenHeld()) return *std::move(action);
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) {
    return Finish(absl::OkStatus(), "the run is complete");
  }
  if (plan_.run_state() == v1::RUN_STATE_PAUSED) {
    return Wait("the run is paused");
  }
  return hold_.empty() ? NextBegin() : WaitOnHold();
}

bool IslandLoop::LacksDataToFinish() const {
  const LaneState& state = lanes_[Index(Lane::kTraining)];
  return finishing_ && !state.awaited.empty() &&
         state.failure_count >= kFinishTriesMax;
}

Action IslandLoop::WaitOnHold() const {
  Action action = Wait(absl::StrCat("paused by its user: ", hold_));
  // Without the reason, which is the user's own.
  action.hindrance = "paused by its user";
  return action;
}

std::optional<Action> IslandLoop::NextEnd() const {
  if (stop_count_ >= 2) {
    return Finish(absl::CancelledError("stopped at once"), "stopped twice");
  }
  if (left_) {
    if (refused_.has_value()) return Finish(*refused_, "refused");
    return Finish(absl::OkStatus(), "left the run");
  }
  if (refused_.has_value() && !leave_reason_.empty()) {
    return MakeAction(ActionKind::kLeave, leave_reason_);
  }
  if (refused_.has_value()) return Finish(*refused_, "refused");
  if ((stop_count_ > 0 || finishing_) && !joined_) {
    return Finish(absl::OkStatus(), "stopped before it joined");
  }
  return std::nullopt;
}

std::optional<Action> IslandLoop::NextStop() const {
  if (stop_count_ == 0) return std::nullopt;
  if (stream_.begun() && plan_.run_state() == v1::RUN_STATE_ACTIVE &&
      connected_ && stream_.Unpushed(View()) &&
      lanes_[Index(Lane::kPush)].failure_count < kStopFailuresMax &&
      lanes_[Index(Lane::kSave)].failure_count < kStopFailuresMax) {
    return Wait("pushing saved contributions before it leaves");
  }
  const bool partly_pushed =
      sync_.has_value() && plan_.run_state() == v1::RUN_STATE_ACTIVE &&
      connected_ && lanes_[0].failure_count < kStopFailuresMax &&
      std::any_of(sync_->parts.begin(), sync_->parts.end(),
                  [this](const Sync::Part& part) {
                    return !part.pushed && !part.refused &&
                           !IsDecided(part.at, sync_->seq);
                  });
  if (partly_pushed) return NextSync();
  return MakeAction(ActionKind::kLeave, "stop requested");
}

std::optional<Action> IslandLoop::NextSync() const {
  if (!sync_.has_value()) return std::nullopt;
  // A paused run still commits sealed rounds, so lost parts are pushed again.
  const bool paused = plan_.run_state() == v1::RUN_STATE_PAUSED;
  const auto pushes = [&](const Sync::Part& part) {
    return !part.pushed && !part.refused &&
           !IsDecided(part.at, sync_->seq) &&
           (!paused || View().NeedsRepush(part.at.fragment, sync_->seq));
  };
  if (paused &&
      std::none_of(sync_->parts.begin(), sync_->parts.end(), pushes)) {
    return Wait("the run is paused");
  }
  // After completion an undecided outcome stays undecided.
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) return std::nullopt;
  // A restarted member that waits for a commit is ready for later rounds.
  if (!ReadyReported() && !lanes_[0].backing_off) {
    return ReadyReport("a contribution is out");
  }
  for (const Sync::Part& part : sync_->parts) {
    if (!pushes(part)) continue;
    if (lanes_[0].backing_off) return Wait("a push failed");
    const bool needs_repush = View().NeedsRepush(part.at.fragment, sync_->seq);
    Action action = MakeAction(
        ActionKind::kPush, needs_repush ? "a shard has lost the contribution"
                                        : "the contribution is saved");
    action.needs_repush = needs_repush;
    action.fragment = part.at.fragment;
    action.seq = sync_->seq;
    action.run_epoch = run_epoch_;
    action.slot = slot_;
    return action;
  }
  return Wait("waiting for the commit");
}

std::optional<Action> IslandLoop::NextInRound() const {
  if (!round_.has_value()) return std::nullopt;
  const Round& round = *round_;
  if (plan_.run_state() != v1::RUN_STATE_ACTIVE) {
    // A finish does not wait for steps that it may not take.
    if (finishing_ && round.done_step_count < round.planned_step_count) {
      return std::nullopt;
    }
    return Wait("the run is paused");
  }
  int64_t step_count_max = round.planned_step_count;
  if (spec_.schedule().timing() == v1::TIMING_ELASTIC && Away()) {
    step_count_max += spec_.schedule().max_ahead_steps();
  }
  if (round.done_step_count < step_count_max) {
    if (finishing_ && (!hold_.empty() || LacksDataToFinish())) {
      return std::nullopt;
    }
    if (!hold_.empty()) return WaitOnHold();
  }
  if (round.done_step_count < step_count_max) {
    Action action = MakeAction(
        ActionKind::kTrain,
        round.done_step_count < round.planned_step_count
            ? "the round's next step"
            : "ahead: the coordinator or a shard is away");
    action.step = round.start_step + round.done_step_count;
    // Beyond the plan step by step: the peer may be back.
    action.step_count_max = std::max<int64_t>(
        1, round.planned_step_count - round.done_step_count);
    action.version = View().CutVersion(0);
    action.data_shard = position_->first;
    action.data_position = position_->second;
    return action;
  }
  // Not open: sealed without us, or reopened. Async islands ignore this.
  for (const AnchoredFragment& at : round.fragments) {
    if (!async() &&
        View().FindOpen(at.fragment, at.anchor_version) == nullptr) {
      return Wait("the round is not open for contributions");
    }
  }
  Action action = MakeAction(ActionKind::kContribute, "the planned steps are done");
  action.seq = next_seq_;
  action.run_epoch = run_epoch_;
  action.slot = slot_;
  action.contributions = round.fragments;
  action.step_count = round.done_step_count;
  action.data_shard = round.data_shard;
  action.data_begin = round.data_begin;
  action.data_position = position_->second;
  return action;
}

bool IslandLoop::EvaluationDue() const {
  const int64_t every = spec_.evaluation().every_round_count();
  if (every <= 0 || plan_.cut_size() == 0 || !hold_.empty()) return false;
  if (async()) return AsyncEvaluationDue();
  const int64_t version = EvaluatedVersion();
  if (version <= evaluated_version_ || version == 0) return false;
  const bool is_last = View().AllEnded();
  if (version % every != 0 && !is_last) return false;
  const auto found = evaluators_.find(is_last ? View().CutVersion(0) : version);
  if (found == evaluators_.end() || found->second.count <= 0) return false;
  return version % found->second.count == found->second.index;
}

// Best effort, and as bounded as its pulls.
bool IslandLoop::ShowDue() const {
  return shows_end_ && !shown_ && plan_.cut_size() > 0 &&
         plan_.run_state() == v1::RUN_STATE_COMPLETED &&
         lanes_[Index(FindLane(ActionKind::kPull))].failure_count <
             kShowFailuresMax;
}

bool IslandLoop::PullWanted() const {
  if (EvaluationDue() || ShowDue()) return true;
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) return false;
  const double share = spec_.schedule().sample_fraction();
  if (share <= 0 || share >= 1) return true;
  // In a sampled run an island pulls only what it is asked to train.
  if (!ReadyReported()) return true;
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    if (open.version() == View().CutVersion(open.fragment()) &&
        View().FindSlot(open) != nullptr) {
      return true;
    }
  }
  return false;
}

std::optional<Action> IslandLoop::NextPull() const {
  if (!PullWanted()) return std::nullopt;
  for (int f = 0; f < plan_.cut_size(); ++f) {
    if (!HeldEnough(f)) return MakePull(f);
  }
  return std::nullopt;
}

Action IslandLoop::MakePull(int32_t fragment) const {
  const v1::FragmentVersion& newest = plan_.cut(fragment);
  Action action = MakeAction(ActionKind::kPull, "a newer version is committed");
  action.run_epoch = run_epoch_;
  action.fragment = fragment;
  action.version = newest.version();
  action.digest = newest.digest();
  action.from_version = held_[fragment];
  action.commit_seq = newest.commit_seq();
  return action;
}

Action IslandLoop::ReadyReport(std::string reason) const {
  Action action = MakeAction(ActionKind::kReportReady, std::move(reason));
  action.commit_seq = HeldCommitSeq();
  action.island_epoch = island_epoch_;
  action.coordinator_epoch = plan_.coordinator_epoch();
  return action;
}

// A restore makes an older cut the newest one.
int64_t IslandLoop::HeldCommitSeq() const {
  return std::max(View().CutCommitSeq(), plan_.restored_commit_seq());
}

Action IslandLoop::OptimizerReset() const {
  Action action =
      MakeAction(ActionKind::kResetOptimizer,
                 "its state is of other parameters");
  action.warm_up = plan_.commit_seq() > 0;
  return action;
}

std::optional<Action> IslandLoop::NextEvaluation() const {
  const bool due = EvaluationDue();
  if (!HeldAll() || !(due || ShowDue())) return std::nullopt;
  Action action = MakeEvaluation(due ? "it is this island's turn to evaluate"
                                     : "the trainer gets the run's parameters");
  action.only_show = !due;
  return action;
}

Action IslandLoop::NextRecovery() const {
  if (recovery_.drop_due()) return Wait("waiting for contributions' outcomes");
  if (HeldAll() && recovery_.EvaluationDue(held_)) {
    if (AnchorBusy(Lane::kTraining, -1)) return Wait("a pull is not over");
    Action action = MakeEvaluation("its training was not finite");
    action.checks_anchors = true;
    return action;
  }
  Action action = Wait(HeldAll() ? recovery_.hindrance()
                                 : "waiting for the newest version");
  action.hindrance = recovery_.hindrance();
  return action;
}

Action IslandLoop::MakeEvaluation(std::string reason) const {
  Action action = MakeAction(ActionKind::kEvaluate, std::move(reason));
  action.version = EvaluatedVersion();
  action.commit_seq = async() ? held_commit_seq_ : View().CutCommitSeq();
  action.cut.assign(plan_.cut().begin(), plan_.cut().end());
  return action;
}

std::optional<Action> IslandLoop::NextWhenHeld() const {
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) return NextEvaluation();
  if (restore_due_) {
    return MakeAction(ActionKind::kRestoreSave,
                      "the local checkpoint fits the plan");
  }
  if (reset_due_) return OptimizerReset();
  if (!HeldAll()) return std::nullopt;
  if (!ReadyReported()) return ReadyReport("the newest cut is held");
  return NextEvaluation();
}

std::optional<IslandLoop::Round> IslandLoop::ChooseRound() const {
  if (async()) return ChooseAsyncRound();
  Round round;
  int64_t version_max = -1;
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    const int32_t f = open.fragment();
    if (f < 0 || f >= plan_.cut_size() ||
        open.version() != View().CutVersion(f)) {
      continue;
    }
    const v1::SlotPlan* slot = View().FindSlot(open);
    if (slot == nullptr) continue;
    if (!round.fragments.empty() && slot->start_step() > round.start_step) {
      continue;
    }
    if (round.fragments.empty() || slot->start_step() < round.start_step) {
      round.fragments.clear();
      version_max = -1;
      round.start_step = slot->start_step();
      round.planned_step_count = std::max<int64_t>(1, slot->step_count());
      round.data_shard = slot->data_shard();
      round.data_begin = slot->data_position();
    }
    round.fragments.push_back({f, open.version()});
    version_max = std::max(version_max, open.version());
  }
  if (round.fragments.empty()) return std::nullopt;
  for (int f = 0; f < plan_.cut_size(); ++f) {
    const int64_t version = View().CutVersion(f);
    if (version <= version_max && !View().Ended(f) &&
        View().FindOpen(f, version) == nullptr) {
      return std::nullopt;
    }
  }
  std::sort(round.fragments.begin(), round.fragments.end(),
            [](const AnchoredFragment& a, const AnchoredFragment& b) {
              return a.fragment < b.fragment;
            });
  // Windows that this island has read are not read again, even if they were not
  // merged. The same holds for those that the data shard's previous owner read.
  if (position_.has_value() && position_->first == round.data_shard) {
    round.data_begin = std::max(round.data_begin, position_->second);
  }
  return round;
}

Action IslandLoop::NextBegin() const {
  if (recovery_.is_held()) return NextRecovery();
  if (HeldAll() && ChooseRound().has_value()) {
    return MakeAction(ActionKind::kBeginRound, "a round expects this island");
  }
  return Wait("no round expects this island yet");
}

}  // namespace atl::worker
