#include "worker/core/island_loop.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::worker {
namespace {

// Evaluators kept: rounds that can be open at once, and a few to spare.
constexpr size_t kEvaluatorCountMax = 8;

Action Make(ActionKind kind, std::string reason) {
  Action action;
  action.kind = kind;
  action.reason = std::move(reason);
  return action;
}

Action Finish(absl::Status status, std::string reason) {
  Action action = Make(ActionKind::kFinish, std::move(reason));
  action.status = std::move(status);
  return action;
}

bool NeverRetry(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
      return true;
    default:
      return false;
  }
}

bool Decided(v1::Outcome outcome) {
  return outcome != v1::OUTCOME_UNSPECIFIED;
}

}  // namespace

const char* ActionName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kWait:
      return "wait";
    case ActionKind::kLoadSave:
      return "load_save";
    case ActionKind::kRestoreSave:
      return "restore_save";
    case ActionKind::kResetOptimizer:
      return "reset_optimizer";
    case ActionKind::kPull:
      return "pull";
    case ActionKind::kReportReady:
      return "report_ready";
    case ActionKind::kBeginRound:
      return "begin_round";
    case ActionKind::kTrain:
      return "train";
    case ActionKind::kContribute:
      return "contribute";
    case ActionKind::kPush:
      return "push";
    case ActionKind::kEvaluate:
      return "evaluate";
    case ActionKind::kLeave:
      return "leave";
    case ActionKind::kFinish:
      return "finish";
  }
  return "unknown";
}

// --- News --------------------------------------------------------------------

void IslandLoop::OnJoined(const v1::JoinResponse& response) {
  const bool same = joined_ && response.slot() == slot_ &&
                    response.run().run_epoch() == run_epoch_;
  const bool first = !joined_;
  joined_ = true;
  connected_ = true;
  spec_ = response.run().spec();
  slot_ = response.slot();
  island_epoch_ = response.island_epoch();
  next_seq_ = first ? response.next_seq()
                    : std::max(next_seq_, response.next_seq());
  next_seq_ = std::max<int64_t>(next_seq_, 1);
  join_outcomes_.assign(response.outcomes().begin(), response.outcomes().end());
  if (!same) {
    run_epoch_ = response.run().run_epoch();
    DropAll();
    // After a first join the save decides; a changed identity has none.
    reset_due_ = !first;
  }
  if (!position_.has_value() ||
      position_->first != response.data_shard() ||
      position_->second < response.data_position()) {
    if (!round_.has_value()) {
      position_ = {response.data_shard(), response.data_position()};
    }
  }
  if (sync_.has_value()) {
    for (Sync::Part& part : sync_->parts) part.pushed = false;
  }
  // A Join's plan counts even if a newer start of the coordinator numbers its
  // plans from below.
  plan_ = response.plan();
  run_epoch_ = std::max(run_epoch_, plan_.run_epoch());
  Settle();
}

void IslandLoop::OnPlan(const v1::IslandPlan& plan) {
  if (!joined_) return;
  if (std::make_tuple(plan.coordinator_epoch(), plan.revision()) <
      std::make_tuple(plan_.coordinator_epoch(), plan_.revision())) {
    return;
  }
  if (plan.island_epoch() > island_epoch_) {
    OnRefused(absl::AbortedError(
        "another process joined as this island; one of them has to end"));
    return;
  }
  bool unproven = plan.placement_epoch() != plan_.placement_epoch() ||
                  plan.coordinator_epoch() != plan_.coordinator_epoch() ||
                  plan.shards_size() != plan_.shards_size();
  for (int i = 0; !unproven && i < plan.shards_size(); ++i) {
    unproven = plan.shards(i).incarnation() != plan_.shards(i).incarnation();
  }
  plan_ = plan;
  if (plan_.run_epoch() > run_epoch_) {
    run_epoch_ = plan_.run_epoch();
    DropAll();
    save_looked_at_ = true;
    reset_due_ = true;
    position_.reset();
  }
  if (unproven && sync_.has_value()) {
    for (Sync::Part& part : sync_->parts) part.pushed = false;
  }
  // A change of plan is worth a try at once.
  backing_off_ = false;
  Settle();
}

void IslandLoop::OnRefused(absl::Status status) {
  if (!refused_.has_value()) refused_ = std::move(status);
}

void IslandLoop::OnSaveLoaded(std::optional<SaveSummary> save) {
  if (save_looked_at_) return;
  save_looked_at_ = true;
  if (save.has_value()) ReconcileSave(*save);
  // A fresh process has a fresh optimizer; past version 0 it needs a warm-up.
  const bool at_start = plan_.commit_seq() == 0;
  if (!restore_due_ && !at_start) reset_due_ = true;
  Settle();
}

void IslandLoop::OnDone(const Action& action, const absl::Status& status) {
  if (!status.ok()) {
    ++failure_count_;
    backing_off_ = true;
  } else {
    failure_count_ = 0;
    backing_off_ = false;
  }
  switch (action.kind) {
    case ActionKind::kPull:
      if (status.ok()) {
        if (action.fragment < static_cast<int32_t>(held_.size())) {
          held_[action.fragment] = action.version;
        }
      } else if (NeverRetry(status)) {
        OnRefused(status);
      }
      break;
    case ActionKind::kPush:
      if (!sync_.has_value() || sync_->seq != action.seq) break;
      for (Sync::Part& part : sync_->parts) {
        if (part.at.fragment != action.fragment) continue;
        if (status.ok()) part.pushed = true;
        // Refused as a whole: its outcome says so soon.
        if (absl::IsInvalidArgument(status)) part.refused = true;
      }
      if (absl::IsUnauthenticated(status) || absl::IsUnimplemented(status)) {
        OnRefused(status);
      }
      break;
    case ActionKind::kRestoreSave:
      backing_off_ = false;
      restore_due_ = false;
      if (!status.ok()) reset_due_ = true;
      break;
    case ActionKind::kResetOptimizer:
      if (status.ok()) reset_due_ = false;
      break;
    case ActionKind::kReportReady:
      if (status.ok()) {
        ready_reported_ = {island_epoch_, plan_.coordinator_epoch()};
      }
      break;
    case ActionKind::kBeginRound:
      if (!status.ok()) break;
      round_ = ChooseRound();
      if (round_.has_value()) {
        round_->begun = true;
        position_ = {round_->data_shard, round_->data_begin};
      }
      break;
    case ActionKind::kTrain:
      if (!status.ok()) {
        // The others need not wait for this island's lease.
        leave_due_ = !refused_.has_value();
        OnRefused(status);
        break;
      }
      if (position_.has_value()) {
        position_->second = action.data_position + spec_.inner().batch_size();
      }
      if (round_.has_value()) ++round_->done_step_count;
      break;
    case ActionKind::kContribute:
      if (!status.ok() || !round_.has_value()) break;
      sync_.emplace();
      sync_->seq = action.seq;
      for (const AnchoredFragment& at : action.contributions) {
        sync_->parts.push_back({at, false, false});
      }
      next_seq_ = action.seq + 1;
      round_.reset();
      break;
    case ActionKind::kEvaluate:
      // Best effort: one that fails is left out.
      backing_off_ = false;
      evaluated_version_ = action.version;
      break;
    case ActionKind::kLeave:
      backing_off_ = false;
      left_ = true;
      break;
    case ActionKind::kWait:
    case ActionKind::kLoadSave:
    case ActionKind::kFinish:
      break;
  }
  Settle();
}

// --- What is known -----------------------------------------------------------

int64_t IslandLoop::CutVersion(int32_t fragment) const {
  return fragment < plan_.cut_size() ? plan_.cut(fragment).version() : -1;
}

int64_t IslandLoop::CutCommitSeq() const {
  int64_t commit_seq = 0;
  for (const v1::FragmentVersion& fragment : plan_.cut()) {
    commit_seq = std::max(commit_seq, fragment.commit_seq());
  }
  return commit_seq;
}

bool IslandLoop::ReadyReported() const {
  return ready_reported_ ==
         std::make_pair(island_epoch_, plan_.coordinator_epoch());
}

const v1::OpenRound* IslandLoop::FindOpen(int32_t fragment,
                                          int64_t version) const {
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    if (open.fragment() == fragment && open.version() == version) return &open;
  }
  return nullptr;
}

const v1::SlotPlan* IslandLoop::FindSlot(const v1::OpenRound& open) const {
  for (const v1::SlotPlan& slot : open.slots()) {
    if (slot.slot() == slot_) return &slot;
  }
  return nullptr;
}

v1::Outcome IslandLoop::OutcomeOf(int32_t fragment, int64_t seq) const {
  const auto matches = [&](const v1::ContributionOutcome& outcome) {
    const v1::ContributionKey& key = outcome.key();
    return key.run_epoch() == run_epoch_ && key.fragment() == fragment &&
           key.slot() == slot_ && key.seq() == seq;
  };
  for (const v1::ContributionOutcome& outcome : plan_.outcomes()) {
    if (matches(outcome)) return outcome.outcome();
  }
  for (const v1::ContributionOutcome& outcome : join_outcomes_) {
    if (matches(outcome)) return outcome.outcome();
  }
  return v1::OUTCOME_UNSPECIFIED;
}

bool IslandLoop::PartDecided(const Sync& sync, const Sync::Part& part) const {
  return CutVersion(part.at.fragment) > part.at.anchor_version ||
         Decided(OutcomeOf(part.at.fragment, sync.seq));
}

bool IslandLoop::Away() const {
  if (!connected_) return true;
  return std::any_of(plan_.shards().begin(), plan_.shards().end(),
                     [](const v1::ShardPlacement& shard) {
                       return shard.address().empty();
                     });
}

bool IslandLoop::HeldAll() const {
  if (plan_.cut_size() == 0 ||
      held_.size() != static_cast<size_t>(plan_.cut_size())) {
    return false;
  }
  for (int f = 0; f < plan_.cut_size(); ++f) {
    if (held_[f] != plan_.cut(f).version()) return false;
  }
  return true;
}

SaveSummary IslandLoop::EvaluatorOf(int64_t version) const {
  SaveSummary summary;
  summary.evaluator_version = version;
  const auto found = evaluators_.find(version);
  if (found != evaluators_.end()) {
    summary.evaluator_index = found->second.index;
    summary.evaluator_count = found->second.count;
  }
  return summary;
}

// --- What news overtakes -----------------------------------------------------

void IslandLoop::DropAll() {
  held_.clear();
  round_.reset();
  sync_.reset();
  restore_due_ = false;
  evaluators_.clear();
  ready_reported_ = {0, 0};
}

void IslandLoop::Settle() {
  if (!joined_) return;
  if (held_.size() != static_cast<size_t>(plan_.cut_size())) {
    held_.assign(plan_.cut_size(), -1);
  }
  NoteOpenRounds();
  if (save_looked_at_) SettleSync();
  SettleRound();
}

void IslandLoop::NoteOpenRounds() {
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    if (open.fragment() != 0) continue;
    Evaluator evaluator;
    evaluator.count = open.slots_size();
    for (int i = 0; i < open.slots_size(); ++i) {
      if (open.slots(i).slot() == slot_) evaluator.index = i;
    }
    evaluators_[open.version() + 1] = evaluator;
  }
  while (evaluators_.size() > kEvaluatorCountMax) {
    evaluators_.erase(evaluators_.begin());
  }
}

void IslandLoop::SettleSync() {
  if (!sync_.has_value()) return;
  for (const Sync::Part& part : sync_->parts) {
    if (!PartDecided(*sync_, part)) return;
  }
  // Decided against, and the version did not move: the round opens again. What
  // led there was not good, so the optimizer does not carry it on.
  for (const Sync::Part& part : sync_->parts) {
    if (CutVersion(part.at.fragment) == part.at.anchor_version) {
      reset_due_ = true;
    }
  }
  sync_.reset();
}

void IslandLoop::SettleRound() {
  if (!round_.has_value()) return;
  auto& fragments = round_->fragments;
  const auto overtaken = [this](const AnchoredFragment& at) {
    if (CutVersion(at.fragment) != at.anchor_version) return true;
    const v1::OpenRound* open = FindOpen(at.fragment, at.anchor_version);
    return open != nullptr && FindSlot(*open) == nullptr;
  };
  fragments.erase(
      std::remove_if(fragments.begin(), fragments.end(), overtaken),
      fragments.end());
  if (fragments.empty()) round_.reset();
}

void IslandLoop::ReconcileSave(const SaveSummary& save) {
  if (save.run_id != run_id_ || save.run_epoch != run_epoch_ ||
      save.slot != slot_ || save.contributions.empty()) {
    return;
  }
  Sync sync;
  sync.seq = save.seq;
  for (const AnchoredFragment& at : save.contributions) {
    const int64_t cut = CutVersion(at.fragment);
    const v1::Outcome outcome = OutcomeOf(at.fragment, save.seq);
    const bool open = cut == at.anchor_version && !Decided(outcome);
    const bool merged =
        cut == at.anchor_version + 1 && outcome == v1::OUTCOME_MERGED;
    if (!open && !merged) return;
    sync.parts.push_back({at, false, false});
  }
  restore_due_ = true;
  position_ = {save.data_shard, save.data_position};
  next_seq_ = std::max(next_seq_, save.seq + 1);
  if (save.evaluator_count > 0) {
    evaluators_[save.evaluator_version] = {save.evaluator_index,
                                           save.evaluator_count};
  }
  // Parts that are merged are settled already.
  sync_ = std::move(sync);
}

// --- What to do --------------------------------------------------------------

Action IslandLoop::Wait(std::string reason) const {
  Action action = Make(ActionKind::kWait, std::move(reason));
  if (backing_off_) action.failure_count = failure_count_;
  return action;
}

Action IslandLoop::Next() const {
  if (auto action = NextEnd()) return *std::move(action);
  if (!joined_) return Wait("joining the run");
  if (!save_looked_at_) {
    return Make(ActionKind::kLoadSave, "a life begins");
  }
  if (auto action = NextStop()) return *std::move(action);
  if (plan_.run_state() == v1::RUN_STATE_CANCELLED) {
    return Finish(absl::CancelledError("the run was cancelled"),
                  "the run was cancelled");
  }
  if (plan_.run_state() == v1::RUN_STATE_STARTING || plan_.cut_size() == 0) {
    return Wait("the run is starting");
  }
  if (auto action = NextSync()) return *std::move(action);
  if (backing_off_) return Wait("the last attempt failed");
  if (auto action = NextInRound()) return *std::move(action);
  if (auto action = NextPull()) return *std::move(action);
  if (auto action = NextWhenHeld()) return *std::move(action);
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) {
    return Finish(absl::OkStatus(), "the run is complete");
  }
  if (plan_.run_state() == v1::RUN_STATE_PAUSED) {
    return Wait("the run is paused");
  }
  return NextBegin();
}

std::optional<Action> IslandLoop::NextEnd() const {
  if (stop_count_ >= 2) {
    return Finish(absl::CancelledError("stopped at once"), "stopped twice");
  }
  if (left_) {
    if (refused_.has_value()) return Finish(*refused_, "refused");
    return Finish(absl::OkStatus(), "left the run");
  }
  if (refused_.has_value() && leave_due_) {
    return Make(ActionKind::kLeave, std::string(refused_->message()));
  }
  if (refused_.has_value()) return Finish(*refused_, "refused");
  if (stop_count_ > 0 && !joined_) {
    return Finish(absl::OkStatus(), "stopped before it joined");
  }
  return std::nullopt;
}

std::optional<Action> IslandLoop::NextStop() const {
  if (stop_count_ == 0) return std::nullopt;
  const bool partly_pushed =
      sync_.has_value() && plan_.run_state() == v1::RUN_STATE_ACTIVE &&
      connected_ && failure_count_ < kStopFailuresMax &&
      std::any_of(sync_->parts.begin(), sync_->parts.end(),
                  [this](const Sync::Part& part) {
                    return !part.pushed && !part.refused &&
                           !PartDecided(*sync_, part);
                  });
  if (partly_pushed) return NextSync();
  return Make(ActionKind::kLeave, "stop requested");
}

std::optional<Action> IslandLoop::NextSync() const {
  if (!sync_.has_value()) return std::nullopt;
  if (plan_.run_state() == v1::RUN_STATE_PAUSED) {
    // Rounds that were sealed with it still commit.
    return Wait("the run is paused");
  }
  // Complete: what is not decided by now never will be.
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) return std::nullopt;
  // A member in a new life that waits for a commit needs nothing before it:
  // it is ready for the rounds after.
  if (!ReadyReported() && !backing_off_) {
    Action action = Make(ActionKind::kReportReady, "a contribution is out");
    action.commit_seq = CutCommitSeq();
    return action;
  }
  for (const Sync::Part& part : sync_->parts) {
    if (part.pushed || part.refused || PartDecided(*sync_, part)) continue;
    if (backing_off_) return Wait("a push failed");
    Action action = Make(ActionKind::kPush, "the contribution is saved");
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
  if (plan_.run_state() != v1::RUN_STATE_ACTIVE) {
    return Wait("the run is paused");
  }
  const Round& round = *round_;
  int64_t step_count_max = round.planned_step_count;
  if (spec_.schedule().timing() == v1::TIMING_ELASTIC && Away()) {
    step_count_max += spec_.schedule().max_ahead_steps();
  }
  if (round.done_step_count < step_count_max) {
    Action action = Make(
        ActionKind::kTrain,
        round.done_step_count < round.planned_step_count
            ? "the round's next step"
            : "ahead: the coordinator or a shard is away");
    action.step = round.start_step + round.done_step_count;
    action.data_shard = position_->first;
    action.data_position = position_->second;
    return action;
  }
  // A fragment that is not open now is being sealed without us or reopened.
  for (const AnchoredFragment& at : round.fragments) {
    if (FindOpen(at.fragment, at.anchor_version) == nullptr) {
      return Wait("the round is not open for contributions");
    }
  }
  Action action = Make(ActionKind::kContribute, "the planned steps are done");
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
  if (every <= 0 || plan_.cut_size() == 0) return false;
  const int64_t version = CutVersion(0);
  if (version <= evaluated_version_ || version == 0) return false;
  if (version % every != 0 && version != spec_.schedule().round_count()) {
    return false;
  }
  const auto found = evaluators_.find(version);
  if (found == evaluators_.end() || found->second.count <= 0) return false;
  return version % found->second.count == found->second.index;
}

bool IslandLoop::PullWanted() const {
  if (EvaluationDue()) return true;
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) return false;
  const double share = spec_.schedule().sample_fraction();
  if (share <= 0 || share >= 1) return true;
  // Sampled runs: what nobody asks of us is not fetched.
  if (!ReadyReported()) return true;
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    if (open.version() == CutVersion(open.fragment()) &&
        FindSlot(open) != nullptr) {
      return true;
    }
  }
  return false;
}

std::optional<Action> IslandLoop::NextPull() const {
  if (!PullWanted()) return std::nullopt;
  for (int f = 0; f < plan_.cut_size(); ++f) {
    if (held_[f] == plan_.cut(f).version()) continue;
    Action action = Make(ActionKind::kPull, "a newer version is committed");
    action.fragment = f;
    action.version = plan_.cut(f).version();
    action.digest = plan_.cut(f).digest();
    action.commit_seq = plan_.cut(f).commit_seq();
    return action;
  }
  return std::nullopt;
}

std::optional<Action> IslandLoop::NextEvaluation() const {
  if (!HeldAll() || !EvaluationDue()) return std::nullopt;
  Action action = Make(ActionKind::kEvaluate, "it is this island's turn");
  action.version = CutVersion(0);
  action.commit_seq = CutCommitSeq();
  return action;
}

std::optional<Action> IslandLoop::NextWhenHeld() const {
  if (plan_.run_state() == v1::RUN_STATE_COMPLETED) return NextEvaluation();
  if (restore_due_) {
    return Make(ActionKind::kRestoreSave, "the save fits the plan");
  }
  if (reset_due_) {
    Action action = Make(ActionKind::kResetOptimizer, "its state does not fit");
    action.warm_up = plan_.commit_seq() > 0;
    return action;
  }
  if (!HeldAll()) return std::nullopt;
  if (!ReadyReported()) {
    Action action = Make(ActionKind::kReportReady, "the newest cut is held");
    action.commit_seq = CutCommitSeq();
    return action;
  }
  return NextEvaluation();
}

std::optional<IslandLoop::Round> IslandLoop::ChooseRound() const {
  Round round;
  int64_t version_max = -1;
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    const int32_t f = open.fragment();
    if (f < 0 || f >= plan_.cut_size() || open.version() != CutVersion(f)) {
      continue;
    }
    const v1::SlotPlan* slot = FindSlot(open);
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
  // Wait for fragments that are about to commit or to open.
  for (int f = 0; f < plan_.cut_size(); ++f) {
    const int64_t version = CutVersion(f);
    if (version <= version_max && version < spec_.schedule().round_count() &&
        FindOpen(f, version) == nullptr) {
      return std::nullopt;
    }
  }
  std::sort(round.fragments.begin(), round.fragments.end(),
            [](const AnchoredFragment& a, const AnchoredFragment& b) {
              return a.fragment < b.fragment;
            });
  // What this island has read and nobody has merged is not read again, nor is
  // what another has read of a data shard that it held before.
  if (position_.has_value() && position_->first == round.data_shard) {
    round.data_begin = std::max(round.data_begin, position_->second);
  }
  return round;
}

Action IslandLoop::NextBegin() const {
  if (HeldAll() && ChooseRound().has_value()) {
    return Make(ActionKind::kBeginRound, "a round expects this island");
  }
  return Wait("no round expects this island yet");
}

}  // namespace atl::worker
