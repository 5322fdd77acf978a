#include "worker/core/island_loop.h"

#include <algorithm>

#include "base/status/not_finite.h"
#include "base/status/refusal.h"
#include "worker/core/data_awaited.h"
#include "worker/core/leave_reason.h"

namespace atl::worker {
namespace {

// Rounds that can be open at once, and a few to spare.
constexpr size_t kEvaluatorCountMax = 8;
constexpr size_t kUnpushedCountMax = 1024;

// A server holds another run with this run_id.
bool IsOtherRun(const absl::Status& status) {
  return HasReason(status, "OTHER_RUN");
}

bool NeverRetry(const absl::Status& status) {
  if (IsOtherRun(status)) return true;
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

v1::UnpushedWork MakeUnpushed(const AnchoredFragment& at, int64_t seq,
                              int64_t step_count, int64_t token_count) {
  v1::UnpushedWork work;
  work.set_fragment(at.fragment);
  work.set_version(at.anchor_version);
  work.set_seq(seq);
  work.set_step_count(step_count);
  work.set_token_count(token_count);
  return work;
}

}  // namespace

void IslandLoop::OnJoined(const v1::JoinResponse& response) {
  const int64_t run_epoch =
      std::max(response.run().run_epoch(), response.plan().run_epoch());
  const bool same =
      joined_ && response.slot() == slot_ && run_epoch == run_epoch_;
  const bool first = !joined_;
  joined_ = true;
  connected_ = true;
  away_reason_.clear();
  spec_ = response.run().spec();
  slot_ = response.slot();
  island_epoch_ = response.island_epoch();
  next_seq_ = first ? response.next_seq()
                    : std::max(next_seq_, response.next_seq());
  next_seq_ = std::max<int64_t>(next_seq_, 1);
  join_outcomes_.assign(response.outcomes().begin(), response.outcomes().end());
  if (first) {
    run_epoch_ = run_epoch;  // The local checkpoint decides whether to reset.
  } else if (run_epoch != run_epoch_) {
    StartAfresh(run_epoch);
  } else if (!same) {
    DropAll();
    reset_due_ = true;
  }
  if (!position_.has_value() ||
      position_->first != response.data_shard() ||
      position_->second < response.data_position()) {
    if (!round_.has_value() && !stream_.begun()) {
      position_ = {response.data_shard(), response.data_position()};
    }
  }
  if (sync_.has_value()) {
    for (Sync::Part& part : sync_->parts) part.pushed = false;
  }
  stream_.Unprove(View(), /*all=*/true);
  ready_failed_ = false;
  // A Join's plan counts even if its revision is lower: a restarted coordinator
  // numbers its plans anew.
  plan_ = response.plan();
  Settle();
}

void IslandLoop::OnPlan(const v1::IslandPlan& plan) {
  if (!joined_) return;
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
    StartAfresh(plan_.run_epoch());
  }
  if (sync_.has_value()) {
    for (Sync::Part& part : sync_->parts) {
      if (unproven || View().NeedsRepush(part.at.fragment, sync_->seq)) {
        part.pushed = false;
      }
    }
  }
  stream_.Unprove(View(), unproven);
  // A changed plan ends every backoff.
  for (LaneState& lane : lanes_) lane.backing_off = false;
  ready_failed_ = false;
  Settle();
}

void IslandLoop::OnConnection(bool up, std::string why) {
  connected_ = up;
  away_reason_ = std::move(why);
  ready_failed_ = false;
}

void IslandLoop::OnRefused(absl::Status status) {
  if (!refused_.has_value()) refused_ = std::move(status);
}

void IslandLoop::OnSaveLoaded(std::optional<SaveSummary> save) {
  if (save_looked_at_) return;
  save_looked_at_ = true;
  if (save.has_value()) ReconcileSave(*save);
  // A new process has fresh optimizer state; past version 0 it needs a warm-up.
  const bool at_start = plan_.commit_seq() == 0;
  if (!restore_due_ && !at_start) reset_due_ = true;
  Settle();
}

void IslandLoop::OnDataCame() {
  ++data_count_;
  for (LaneState& lane : lanes_) {
    if (!lane.awaited.empty()) lane.backing_off = false;
    lane.awaited.clear();
  }
}

void IslandLoop::OnDone(const Action& action, const absl::Status& status) {
  LaneState& lane = lanes_[Index(FindLane(action.kind))];
  // The island itself has stopped a push that is cancelled, for a plan or a wish
  // that the next decision knows. The shards may have a part of it.
  const bool failed = !status.ok() && !(action.kind == ActionKind::kPush &&
                                        absl::IsCancelled(status));
  lane.failure_count = failed ? lane.failure_count + 1 : 0;
  // The file may have come after the action had looked.
  const bool came =
      lane.running.has_value() && lane.data_seen != data_count_;
  const bool awaits = IsDataAwaited(status) && !came;
  lane.awaited = awaits ? std::string(status.message()) : "";
  lane.awaited_file = awaits ? AwaitedFile(status) : "";
  lane.backing_off = IsDataAwaited(status) ? awaits : failed;
  const bool is_finite = !FindNotFinite(status).has_value();
  // The action after this failure is another one, so it needs no backoff.
  if (!is_finite) lane.backing_off = false;
  lane.running.reset();
  if (IsDataAwaited(status)) return Settle();  // It has changed nothing.
  if (action.run_epoch < run_epoch_ && action.kind != ActionKind::kLeave) {
    OnStale(action, status);
    return Settle();
  }
  switch (action.kind) {
    case ActionKind::kPull:
      if (status.ok() &&
          action.fragment < static_cast<int32_t>(held_.size())) {
        held_[action.fragment] = action.version;
        held_commit_seq_ = std::max(held_commit_seq_, action.commit_seq);
      }
      if (NeverRetry(status)) OnRefused(status);
      break;
    case ActionKind::kPush:
      OnPushed(action, status);
      break;
    case ActionKind::kRestoreSave:
      // A local checkpoint that cannot be restored is not tried again.
      lane.backing_off = false;
      if (status.ok() && action.unfinished) break;
      restore_due_ = false;
      begun_from_.clear();
      if (!is_finite) {
        OnNotFinite(status);
        break;
      }
      // An error of a step is no fault of the local checkpoint, which stays.
      if (!status.ok() && action.repeats_steps) {
        LeaveWith(action.kind, status);
        break;
      }
      if (!status.ok()) {
        reset_due_ = true;
        GiveUpStream();
      }
      break;
    case ActionKind::kResetOptimizer:
      if (status.ok()) reset_due_ = false;
      stream_.OnReset();
      break;
    case ActionKind::kReportReady:
      if (status.ok()) {
        ready_reported_ = {action.island_epoch, action.coordinator_epoch};
      } else if (streaming()) {
        // Training does not wait for the report.
        ready_failed_ = true;
        lane.backing_off = false;
      }
      break;
    case ActionKind::kBeginRound:
      if (status.ok()) OnBegun();
      break;
    case ActionKind::kTrain:
      OnTrained(action, status);
      break;
    case ActionKind::kContribute:
      if (status.ok()) OnContributed(action);
      // A contribution that cannot be encoded now never can be.
      if (!is_finite) {
        OnNotFinite(status);
      } else if (NeverRetry(status)) {
        LeaveWith(action.kind, status);
      }
      break;
    case ActionKind::kSave:
      if (status.ok()) stream_.OnSaved(action);
      if (!is_finite) {
        stream_.OnUnsavable(action);
        OnNotFinite(status);
      } else if (NeverRetry(status)) {
        LeaveWith(action.kind, status);
      }
      break;
    case ActionKind::kApply:
      OnAppliedInStream(action);
      break;
    case ActionKind::kEvaluate:
      if (action.checks_anchors) {
        if (!status.ok() && is_finite) break;  // Again, later.
        if (recovery_.OnEvaluated(is_finite, held_)) reset_due_ = true;
        if (!recovery_.leave().ok()) {
          LeaveWith(action.kind, recovery_.leave());
        }
        break;
      }
      // Best effort: a failed evaluation is skipped.
      lane.backing_off = false;
      if (action.only_show) {
        shown_ = true;
      } else {
        evaluated_version_ = action.version;
      }
      break;
    case ActionKind::kLeave:
      lane.backing_off = false;
      left_ = true;
      break;
    case ActionKind::kWait:
    case ActionKind::kLoadSave:
    case ActionKind::kFinish:
      break;
  }
  Settle();
}

void IslandLoop::OnStale(const Action& action, const absl::Status& status) {
  lanes_[Index(FindLane(action.kind))] = {};
  // A number that may be in a local checkpoint is not used again.
  if (action.kind == ActionKind::kContribute) {
    next_seq_ = std::max(next_seq_, action.seq + 1);
  }
  const bool is_step = action.kind == ActionKind::kTrain ||
                       action.kind == ActionKind::kRestoreSave;
  if (IsOtherRun(status)) {
    OnRefused(status);
  } else if (is_step && NeverRetry(status) &&
             !FindNotFinite(status).has_value()) {
    LeaveWith(action.kind, status);  // The trainer cannot continue.
  }
}

void IslandLoop::OnPushed(const Action& action, const absl::Status& status) {
  // A shard refuses it as a whole, and the outcome follows in a plan. A shard's
  // error has a reason; one without it is of this machine, which cannot dial.
  const bool refused =
      absl::IsInvalidArgument(status) && GetReason(status).has_value();
  if (status.ok() || refused) stream_.OnPushed(action, refused);
  if (sync_.has_value() && sync_->seq == action.seq) {
    for (Sync::Part& part : sync_->parts) {
      if (part.at.fragment != action.fragment) continue;
      if (status.ok()) part.pushed = true;
      if (refused) part.refused = true;
    }
  }
  if (absl::IsUnauthenticated(status) || absl::IsUnimplemented(status) ||
      IsOtherRun(status)) {
    OnRefused(status);
  }
}

void IslandLoop::OnBegun() {
  begun_from_ = held_;
  if (streaming()) {
    if (stream_.CanBegin(View())) {
      position_ = stream_.Begin(View(), held_, position_);
    }
    return;
  }
  round_ = ChooseRound();
  if (round_.has_value()) {
    position_ = {round_->data_shard, round_->data_begin};
  }
}

void IslandLoop::LeaveWith(ActionKind kind, const absl::Status& status) {
  // The other islands need not wait for this island's lease to expire.
  if (!refused_.has_value()) {
    leave_reason_ = std::string(GetLeaveReason(kind, status));
  }
  OnRefused(status);
}

void IslandLoop::OnNotFinite(const absl::Status& status) {
  recovery_.OnNotFinite(status, begun_from_, next_seq_);
  begun_from_.clear();
}

void IslandLoop::OnTrained(const Action& action, const absl::Status& status) {
  if (FindNotFinite(status).has_value()) return OnNotFinite(status);
  if (!status.ok()) return LeaveWith(action.kind, status);
  if (action.done_step_count > 0) begun_from_.clear();
  if (position_.has_value() && position_->first == action.data_shard) {
    position_->second = action.data_position +
                        action.done_step_count * spec_.inner().batch_size();
  }
  if (round_.has_value()) {
    round_->done_step_count += action.done_step_count;
    round_->done_token_count += action.done_token_count;
  }
  if (stream_.begun()) {
    stream_.OnTrained(action.done_step_count, action.done_token_count);
  }
}

void IslandLoop::OnContributed(const Action& action) {
  if (stream_.begun()) {
    stream_.OnContributed(action);
    last_contributed_ = finishing_;
    next_seq_ = action.seq + 1;
    return;
  }
  if (!round_.has_value()) return;
  sync_.emplace();
  sync_->seq = action.seq;
  sync_->step_count = round_->done_step_count;
  sync_->token_count = round_->done_token_count;
  for (const AnchoredFragment& at : action.contributions) {
    sync_->parts.push_back({at, false, false});
  }
  next_seq_ = action.seq + 1;
  round_.reset();
}

bool IslandLoop::ReadyReported() const {
  return ready_reported_ ==
         std::make_pair(island_epoch_, plan_.coordinator_epoch());
}

v1::Outcome IslandLoop::FindOutcome(const v1::ContributionKey& key) const {
  return key.run_epoch() == run_epoch_ && key.slot() == slot_
             ? View().FindOutcome(key.fragment(), key.seq())
             : v1::OUTCOME_UNSPECIFIED;
}

bool IslandLoop::IsDecided(const AnchoredFragment& at, int64_t seq) const {
  return Obsolete(at) || Decided(View().FindOutcome(at.fragment, seq));
}

bool IslandLoop::Away() const { return !connected_ || View().ShardAway(); }

bool IslandLoop::HeldAll() const {
  if (plan_.cut_size() == 0 ||
      held_.size() != static_cast<size_t>(plan_.cut_size())) {
    return false;
  }
  for (int f = 0; f < plan_.cut_size(); ++f) {
    if (!HeldEnough(f)) return false;
  }
  return true;
}

SaveSummary IslandLoop::FindEvaluator(int64_t version) const {
  SaveSummary summary;
  summary.evaluator_version = version;
  const auto found = evaluators_.find(version);
  if (found != evaluators_.end()) {
    summary.evaluator_index = found->second.index;
    summary.evaluator_count = found->second.count;
  }
  return summary;
}

// At most as many as one report takes, several times. While the coordinator is
// away no round closes.
void IslandLoop::NoteUnpushed(v1::UnpushedWork work) {
  if (work.step_count() + work.restored_step_count() < 1 ||
      unpushed_.size() >= kUnpushedCountMax) {
    return;
  }
  work.set_run_epoch(run_epoch_);
  work.set_island_epoch(island_epoch_);
  work.set_number(++unpushed_number_);
  unpushed_.push_back(std::move(work));
}

void IslandLoop::GiveUpRound() {
  if (!round_.has_value()) return;
  for (const AnchoredFragment& at : round_->fragments) {
    NoteUnpushed(MakeUnpushed(at, 0, round_->done_step_count,
                              round_->done_token_count));
  }
  round_.reset();
}

// A contribution that all shards have gets an outcome.
void IslandLoop::GiveUpSync(bool is_restored) {
  if (!sync_.has_value()) return;
  for (const Sync::Part& part : sync_->parts) {
    if ((!is_restored && (part.pushed || part.refused)) ||
        Decided(View().FindOutcome(part.at.fragment, sync_->seq))) {
      continue;
    }
    NoteUnpushed(MakeUnpushed(part.at, sync_->seq, sync_->step_count,
                              sync_->token_count));
  }
  sync_.reset();
}

void IslandLoop::GiveUpStream(bool is_restored) {
  stream_.GiveUp(View(), is_restored);
  for (v1::UnpushedWork& work : stream_.TakeUnpushed()) {
    NoteUnpushed(std::move(work));
  }
}

void IslandLoop::OnLeaving() {
  GiveUpRound();
  GiveUpSync();
  GiveUpStream();
}

std::vector<v1::UnpushedWork> IslandLoop::TakeUnpushed() {
  return std::exchange(unpushed_, {});
}

void IslandLoop::DropAll(bool is_restored) {
  held_.clear();
  held_commit_seq_ = 0;
  wanted_.clear();
  GiveUpRound();
  GiveUpSync(is_restored);
  GiveUpStream(is_restored);
  restore_due_ = false;
  evaluators_.clear();
  ready_reported_ = {0, 0};
  recovery_ = Recovery();
  begun_from_.clear();
}

void IslandLoop::StartAfresh(int64_t run_epoch) {
  DropAll(/*is_restored=*/true);
  run_epoch_ = run_epoch;
  // Versions go back, and those after them are made anew.
  evaluated_version_ = 0;
  shown_ = false;
  last_contributed_ = false;
  position_.reset();
  // A local checkpoint of an earlier epoch is never loaded.
  save_looked_at_ = true;
  reset_due_ = true;
}

void IslandLoop::Settle() {
  if (!joined_) return;
  if (held_.size() != static_cast<size_t>(plan_.cut_size())) {
    held_.assign(plan_.cut_size(), -1);
    GiveUpStream();
  }
  NoteOpenRounds();
  if (save_looked_at_) SettleSync();
  SettleRound();
  if (stream_.begun() && stream_.Settle(View())) reset_due_ = true;
  SettleRecovery();
  NoteWanted();
  for (v1::UnpushedWork& work : stream_.TakeUnpushed()) {
    NoteUnpushed(std::move(work));
  }
}

// The run has the island's contributions, although their parameters are lost.
void IslandLoop::SettleRecovery() {
  for (const v1::ContributionOutcome& outcome : plan_.outcomes()) {
    if (outcome.key().run_epoch() != run_epoch_) continue;
    recovery_.OnOutcome(outcome.key().seq(), outcome.outcome());
  }
  if (!recovery_.drop_due() ||
      (stream_.begun() && stream_.InFlight(View()))) {
    return;
  }
  GiveUpRound();
  GiveUpStream();
  recovery_.OnDropped();
}

void IslandLoop::NoteOpenRounds() {
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    if (open.fragment() != 0) continue;
    evaluators_[open.version() + 1] =
        open.evaluator_count() > 0
            ? Evaluator{open.evaluator_index(), open.evaluator_count()}
            : Evaluator{View().SlotIndex(open), open.slot_count()};
  }
  while (evaluators_.size() > kEvaluatorCountMax) {
    evaluators_.erase(evaluators_.begin());
  }
}

void IslandLoop::SettleSync() {
  if (!sync_.has_value()) return;
  for (const Sync::Part& part : sync_->parts) {
    if (!IsDecided(part.at, sync_->seq)) return;
  }
  // Decided against, and the version did not move, so the round opens again.
  // The optimizer state led to a bad contribution and is reset.
  for (const Sync::Part& part : sync_->parts) {
    if (DecidedAgainst(*sync_, part)) reset_due_ = true;
  }
  GiveUpSync();
}

void IslandLoop::SettleRound() {
  if (!round_.has_value()) return;
  auto& fragments = round_->fragments;
  const auto overtaken = [this](const AnchoredFragment& at) {
    if (async()) return Obsolete(at);
    if (View().CutVersion(at.fragment) != at.anchor_version) return true;
    const v1::OpenRound* open = View().FindOpen(at.fragment, at.anchor_version);
    return open != nullptr && View().FindSlot(*open) == nullptr;
  };
  std::vector<AnchoredFragment> kept;
  for (const AnchoredFragment& at : fragments) {
    if (!overtaken(at)) {
      kept.push_back(at);
      continue;
    }
    NoteUnpushed(MakeUnpushed(at, 0, round_->done_step_count,
                              round_->done_token_count));
  }
  fragments = std::move(kept);
  if (fragments.empty()) round_.reset();
}

void IslandLoop::ReconcileSave(const SaveSummary& save) {
  if (save.run_id != run_id_ || save.run_epoch != run_epoch_ ||
      save.slot != slot_ || save.contributions.empty()) {
    return;
  }
  unpushed_ = save.unpushed;  // No step was taken yet.
  if (streaming()) {
    if (!Stream::Fits(View(), save)) {
      stream_.GiveUpSave(View(), save);
      return;
    }
    stream_.Restore(View(), save);
    TakeFrom(save);
    return;
  }
  if (!save.tracks.empty()) return;
  Sync sync;
  sync.seq = save.seq;
  sync.step_count = save.step_count;
  sync.token_count = save.token_count;
  bool fits = true;
  for (const AnchoredFragment& at : save.contributions) {
    const int64_t cut = View().CutVersion(at.fragment);
    const v1::Outcome outcome = View().FindOutcome(at.fragment, save.seq);
    const bool open =
        cut >= at.anchor_version && !Obsolete(at) && !Decided(outcome);
    const bool merged = outcome == v1::OUTCOME_MERGED &&
                        (async() || cut == at.anchor_version + 1);
    fits = fits && (open || merged);
    sync.parts.push_back({at, false, false});
  }
  // Merged parts are settled already.
  sync_ = std::move(sync);
  if (!fits) {
    GiveUpSync();
    return;
  }
  TakeFrom(save);
}

void IslandLoop::TakeFrom(const SaveSummary& save) {
  restore_due_ = true;
  position_ = {save.data_shard, save.data_position};
  next_seq_ = std::max(next_seq_, save.seq + 1);
  if (save.evaluator_count > 0) {
    evaluators_[save.evaluator_version] = {save.evaluator_index,
                                           save.evaluator_count};
  }
}

}  // namespace atl::worker
