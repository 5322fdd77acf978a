#include "worker/core/stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/run_length.h"

namespace atl::worker {
namespace {

int32_t FragmentCount(const PlanView& view) { return view.plan.cut_size(); }

// Pushes from one whole save to the next.
int64_t SaveEvery(const PlanView& view) {
  const int64_t every = view.spec.inner().save_every_syncs();
  return every > 0 ? every
                   : SyncsPerRound(view.spec.schedule(), FragmentCount(view));
}

// This island's share of the merge if all slots do their steps.
double ComputeShare(const PlanView& view, const v1::OpenRound& open,
                    const v1::SlotPlan& own) {
  if (view.spec.outer().weighting() == v1::WEIGHTING_UNIFORM) {
    return 1.0 / std::max(1, open.slot_count());
  }
  const int64_t step_count = std::max<int64_t>(1, own.step_count());
  return static_cast<double>(step_count) /
         static_cast<double>(std::max(step_count, open.step_count_sum()));
}

}  // namespace

void Stream::GiveUpSteps(int32_t f, int64_t version) {
  const Track& track = tracks_[f];
  if (clock_ <= track.since_step) return;
  if (track.local_version >= 0) version = track.local_version;
  v1::UnpushedWork& work = unpushed_.emplace_back();
  work.set_fragment(f);
  // After a push the steps are for the version that it makes.
  work.set_version(track.flight.has_value() ? track.flight->anchor_version + 1
                                            : version);
  work.set_step_count(clock_ - track.since_step);
  work.set_token_count(track.token_count);
}

void Stream::NoteFlight(int32_t f, const Flight& flight) {
  if (flight.step_count < 1) return;
  v1::UnpushedWork& work = unpushed_.emplace_back();
  work.set_fragment(f);
  work.set_version(flight.anchor_version);
  work.set_step_count(flight.step_count);
  work.set_token_count(flight.token_count);
  work.set_seq(flight.seq);
}

void Stream::GiveUpFlight(const PlanView& view, int32_t f, bool is_restored) {
  const std::optional<Flight>& flight = tracks_[f].flight;
  if (flight.has_value() &&
      (is_restored || (!flight->pushed && !flight->refused)) &&
      view.FindOutcome(f, flight->seq) == v1::OUTCOME_UNSPECIFIED) {
    NoteFlight(f, *flight);
  }
}

void Stream::GiveUp(const PlanView& view, bool is_restored) {
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    GiveUpFlight(view, f, is_restored);
    GiveUpSteps(f, view.CutVersion(f));
  }
  clock_ = 0;
  rate_offset_ = 0;
  records_left_ = 0;
  tracks_.clear();
}

bool Stream::CanBegin(const PlanView& view) const {
  return std::any_of(view.plan.open_rounds().begin(),
                     view.plan.open_rounds().end(),
                     [&](const v1::OpenRound& open) {
                       return open.version() ==
                                  view.CutVersion(open.fragment()) &&
                              view.FindSlot(open) != nullptr;
                     });
}

Stream::Position Stream::Begin(const PlanView& view,
                               const std::vector<int64_t>& held,
                               std::optional<Position> position) {
  const v1::SlotPlan* first = nullptr;
  for (const v1::OpenRound& open : view.plan.open_rounds()) {
    const v1::SlotPlan* slot = view.FindSlot(open);
    if (slot == nullptr || open.version() != view.CutVersion(open.fragment())) {
      continue;
    }
    if (first == nullptr || slot->start_step() < first->start_step()) {
      first = slot;
    }
  }
  clock_ = first->start_step();
  rate_offset_ = 0;
  save_every_ = SaveEvery(view);
  records_left_ = 0;
  Position begin = {first->data_shard(), first->data_position()};
  if (position.has_value() && position->first == begin.first) {
    begin.second = std::max(begin.second, position->second);
  }
  tracks_.assign(FragmentCount(view), Track());
  for (int32_t f = 0; f < FragmentCount(view); ++f) {
    tracks_[f] = {held[f], clock_, begin.second, std::nullopt};
  }
  return begin;
}

Stream::Due Stream::FindDue(const PlanView& view, int32_t f) const {
  const Track& track = tracks_[f];
  Due due;
  const v1::ScheduleSpec& schedule = view.spec.schedule();
  int64_t step_count =
      PushStep(schedule, FragmentCount(view), f, track.local_version) -
      StartStep(schedule, FragmentCount(view), f, track.local_version);
  const v1::OpenRound* open = view.FindOpen(f, track.local_version);
  if (open != nullptr) {
    const v1::SlotPlan* slot = view.FindSlot(*open);
    due.expected = slot != nullptr;
    due.open = due.expected;
    if (due.expected) {
      step_count = slot->step_count();
      due.start_step = slot->start_step();
      due.weight = ComputeShare(view, *open, *slot);
    }
  }
  if (view.Ended(f) && track.local_version >= view.CutVersion(f)) {
    due.expected = false;
  }
  due.step = track.since_step + std::max<int64_t>(1, step_count);
  return due;
}

int64_t Stream::ApplyStepMin(const PlanView& view, const Flight& flight) const {
  const v1::ScheduleSpec& schedule = view.spec.schedule();
  return schedule.timing() == v1::TIMING_ELASTIC
             ? flight.push_step
             : flight.push_step + schedule.overlap_step_count();
}

int64_t Stream::ApplyStepMax(const PlanView& view, const Flight& flight) const {
  const v1::ScheduleSpec& schedule = view.spec.schedule();
  return flight.push_step + schedule.overlap_step_count() +
         (schedule.timing() == v1::TIMING_ELASTIC ? schedule.max_ahead_steps()
                                                  : 0);
}

std::optional<Action> Stream::NextContribution(
    const PlanView& view, const std::vector<int64_t>& held,
    const Position& position) const {
  std::optional<Action> action;
  std::string blocked;
  const Track* first = nullptr;
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    const Track& track = tracks_[f];
    if (track.flight.has_value() || track.local_version < 0 ||
        track.local_version != view.CutVersion(f)) {
      continue;
    }
    const Due due = FindDue(view, f);
    if (!due.expected || clock_ < due.step) continue;
    if (!due.open) {
      // The round is sealed without this island, reopened, or not open yet.
      blocked = absl::StrCat("the round of fragment ", f,
                             " is not open for contributions");
      continue;
    }
    if (held[f] != track.local_version) {
      blocked = absl::StrCat("the anchor of fragment ", f, " is not here yet");
      continue;
    }
    if (Unsaved()) {
      blocked = "the previous contribution is being saved";
      continue;
    }
    // Fragments that were trained over the same steps go together.
    if (first != nullptr && (track.since_step != first->since_step ||
                             track.data_begin != first->data_begin)) {
      continue;
    }
    if (first == nullptr) {
      first = &track;
      action = MakeAction(ActionKind::kContribute, "its steps are done");
      action->step_count = clock_ - track.since_step;
      action->data_begin = track.data_begin;
      action->weight = due.weight;
      // In a run in rounds the offset never falls, because rounds are never
      // slower than an island that keeps up. A clock of tokens may be.
      const int64_t behind = due.start_step - track.since_step;
      action->rate_offset = HasTokenBudget(view.spec.schedule())
                                ? behind
                                : std::max(rate_offset_, behind);
      action->in_background = view.spec.schedule().overlap_step_count() > 0;
      action->whole_save = records_left_ <= 0;
    }
    action->contributions.push_back({f, track.local_version});
  }
  if (!action.has_value()) {
    if (blocked.empty()) return std::nullopt;
    return MakeAction(ActionKind::kWait, blocked);
  }
  action->run_epoch = view.run_epoch;
  action->slot = view.slot;
  action->data_shard = position.first;
  action->data_position = position.second;
  return action;
}

std::optional<Action> Stream::NextApply(
    const PlanView& view, const std::vector<int64_t>& held) const {
  std::string blocked;
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    const Track& track = tracks_[f];
    const int64_t cut = view.CutVersion(f);
    if (!track.flight.has_value()) {
      if (held[f] <= track.local_version || held[f] != cut) continue;
      // The version advanced without our contribution.
      Action action = MakeAction(ActionKind::kApply,
                                 "its round went on without this island");
      action.adopt = true;
      action.fragment = f;
      action.version = held[f];
      action.clock = clock_;
      action.whole_save = records_left_ <= 0;
      return action;
    }
    const Flight& flight = *track.flight;
    const bool answered = cut > flight.anchor_version;
    if (answered && held[f] == cut && clock_ >= ApplyStepMin(view, flight)) {
      Action action = MakeAction(ActionKind::kApply, "its answer is due");
      action.fragment = f;
      action.version = cut;
      action.clock = clock_;
      action.whole_save = records_left_ <= 0;
      return action;
    }
    if (blocked.empty() && clock_ >= ApplyStepMax(view, flight)) {
      blocked = answered ? absl::StrCat("pulling fragment ", f)
                         : absl::StrCat("waiting for the commit of fragment ",
                                        f);
    }
  }
  if (blocked.empty()) return std::nullopt;
  return MakeAction(ActionKind::kWait, blocked);
}

bool Stream::MayTrain(const PlanView& view) const {
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    const Track& track = tracks_[f];
    if (track.flight.has_value()) {
      // Steps after the last push change nothing that is merged.
      const int64_t round_count = view.spec.schedule().round_count();
      if ((round_count == 0 ||
           track.flight->anchor_version + 1 < round_count) &&
          clock_ < ApplyStepMax(view, *track.flight)) {
        return true;
      }
      continue;
    }
    if (track.local_version < 0) continue;
    const Due due = FindDue(view, f);
    if (due.expected && clock_ < due.step) return true;
  }
  return false;
}

// An elastic answer may be applied at any step after its push. If several steps
// are taken at once it is applied at the overlap's end at the earliest.
int64_t Stream::StepsToNextEvent(const PlanView& view) const {
  int64_t next = INT64_MAX;
  const auto note = [&](int64_t step) {
    if (step > clock_) next = std::min(next, step);
  };
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    const Track& track = tracks_[f];
    if (track.flight.has_value()) {
      const int64_t planned = track.flight->push_step +
                              view.spec.schedule().overlap_step_count();
      note(std::max(planned, clock_ + 1));
    } else if (track.local_version >= 0) {
      const Due due = FindDue(view, f);
      if (due.expected) note(due.step);
    }
  }
  return next == INT64_MAX ? 1 : next - clock_;
}

Action Stream::NextTraining(const PlanView& view,
                            const std::vector<int64_t>& held,
                            const Position& position) const {
  // Pushes first: a contribution travels while the island waits for answers.
  std::optional<Action> contribution = NextContribution(view, held, position);
  if (contribution.has_value() && contribution->kind != ActionKind::kWait) {
    return *std::move(contribution);
  }
  std::optional<Action> apply = NextApply(view, held);
  if (apply.has_value() && apply->kind != ActionKind::kWait) {
    return *std::move(apply);
  }
  if (contribution.has_value()) return *std::move(contribution);
  if (apply.has_value()) return *std::move(apply);
  if (!MayTrain(view)) {
    return MakeAction(ActionKind::kWait, "no round expects this island yet");
  }
  Action action = MakeAction(ActionKind::kTrain, "the next step");
  action.step = clock_ + rate_offset_;
  action.step_count_max = StepsToNextEvent(view);
  action.version = view.CutVersion(0);
  action.data_shard = position.first;
  action.data_position = position.second;
  return action;
}

bool Stream::PushWanted(const PlanView& view, int32_t f) const {
  const std::optional<Flight>& flight = tracks_[f].flight;
  return flight.has_value() && !flight->pushed && !flight->refused &&
         !view.IsDecided(f, flight->anchor_version, flight->seq);
}

bool Stream::Unpushed(const PlanView& view) const {
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    if (PushWanted(view, f)) return true;
  }
  return false;
}

bool Stream::InFlight(const PlanView& view) const {
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    const std::optional<Flight>& flight = tracks_[f].flight;
    if (flight.has_value() &&
        !view.IsDecided(f, flight->anchor_version, flight->seq)) {
      return true;
    }
  }
  return false;
}

std::optional<Action> Stream::NextPush(const PlanView& view) const {
  const bool paused = view.plan.run_state() == v1::RUN_STATE_PAUSED;
  const Flight* first = nullptr;
  std::optional<Action> action;
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    if (!PushWanted(view, f) || !tracks_[f].flight->saved) continue;
    const Flight& flight = *tracks_[f].flight;
    const bool needs_repush = view.NeedsRepush(f, flight.seq);
    if (paused && !needs_repush) continue;
    if (first != nullptr && flight.push_step >= first->push_step) continue;
    first = &flight;
    action = MakeAction(ActionKind::kPush,
                        needs_repush ? "a shard has lost the contribution"
                                     : "the contribution is saved");
    action->needs_repush = needs_repush;
    action->fragment = f;
    action->seq = flight.seq;
    action->run_epoch = view.run_epoch;
    action->slot = view.slot;
  }
  return action;
}

std::optional<Action> Stream::NextSave() const {
  for (const Track& track : tracks_) {
    if (!track.flight.has_value() || track.flight->saved) continue;
    Action action = MakeAction(ActionKind::kSave, "a contribution is taken");
    action.seq = track.flight->seq;
    return action;
  }
  return std::nullopt;
}

int32_t Stream::NextPull(const PlanView& view,
                         const std::vector<int64_t>& held) const {
  int32_t next = -1;
  int64_t soonest = INT64_MAX;
  for (int32_t f = 0; f < FragmentCount(view); ++f) {
    if (held[f] == view.CutVersion(f)) continue;
    int64_t needed = INT64_MAX - 1;
    if (begun()) {
      const Track& track = tracks_[f];
      // After a restart the anchor is useless; only the answer is needed.
      if (track.flight.has_value() &&
          track.flight->anchor_version == view.CutVersion(f)) {
        continue;
      }
      needed = track.flight.has_value()
                   ? track.flight->push_step +
                         view.spec.schedule().overlap_step_count()
                   : track.since_step + view.spec.schedule().inner_step_count();
    }
    if (needed < soonest) {
      soonest = needed;
      next = f;
    }
  }
  return next;
}

void Stream::OnContributed(const Action& action) {
  records_left_ = (action.whole_save ? save_every_ : records_left_) - 1;
  // The learning rate follows the run: this island may be behind the others, or
  // the run's clock may count tokens. The offset changes with the pushed step,
  // not when a plan arrives, so a late plan cannot change bits.
  rate_offset_ = action.rate_offset;
  for (const AnchoredFragment& at : action.contributions) {
    if (at.fragment >= static_cast<int32_t>(tracks_.size())) continue;
    Track& track = tracks_[at.fragment];
    track.flight = Flight{.seq = action.seq,
                          .anchor_version = at.anchor_version,
                          .push_step = clock_,
                          .step_count = clock_ - track.since_step,
                          .token_count = track.token_count,
                          .saved = !action.in_background};
    track.since_step = clock_;
    track.token_count = 0;
    track.data_begin = action.data_position;
  }
}

void Stream::OnApplied(const PlanView& view, const Action& action,
                       const Position& position) {
  if (action.fragment >= static_cast<int32_t>(tracks_.size())) return;
  Track& track = tracks_[action.fragment];
  // A contribution that was never saved: later records would miss it.
  if (track.flight.has_value() && !track.flight->saved) OnReset();
  GiveUpFlight(view, action.fragment);
  if (action.adopt) GiveUpSteps(action.fragment, action.version);
  track.local_version = action.version;
  track.flight.reset();
  if (action.adopt) {
    track.since_step = clock_;
    track.token_count = 0;
    track.data_begin = position.second;
  }
}

void Stream::OnSaved(const Action& action) {
  for (Track& track : tracks_) {
    if (track.flight.has_value() && track.flight->seq == action.seq) {
      track.flight->saved = true;
    }
  }
}

void Stream::OnUnsavable(const Action& action) {
  OnReset();
  for (Track& track : tracks_) {
    if (!track.flight.has_value() || track.flight->seq != action.seq) continue;
    const auto f = static_cast<int32_t>(&track - tracks_.data());
    NoteFlight(f, *track.flight);
    track.flight.reset();
    track.local_version = -1;
  }
}

void Stream::OnPushed(const Action& action, bool refused) {
  if (action.fragment >= static_cast<int32_t>(tracks_.size())) return;
  std::optional<Flight>& flight = tracks_[action.fragment].flight;
  if (!flight.has_value() || flight->seq != action.seq) return;
  (refused ? flight->refused : flight->pushed) = true;
}

bool Stream::Settle(const PlanView& view) {
  bool decided_against = false;
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    Track& track = tracks_[f];
    if (track.flight.has_value()) {
      const Flight& flight = *track.flight;
      if (view.CutVersion(f) == flight.anchor_version &&
          view.IsDecided(f, flight.anchor_version, flight.seq)) {
        // The anchor stays; the local values start from it again.
        decided_against = true;
        OnReset();
        track.flight.reset();
        track.local_version = -1;
      }
    }
  }
  return decided_against;
}

void Stream::Unprove(const PlanView& view, bool all) {
  for (int32_t f = 0; f < static_cast<int32_t>(tracks_.size()); ++f) {
    std::optional<Flight>& flight = tracks_[f].flight;
    if (flight.has_value() && (all || view.NeedsRepush(f, flight->seq))) {
      flight->pushed = false;
    }
  }
}

// --- The local checkpoint ----------------------------------------------------

void Stream::AddTo(SaveSummary& save, const Action& contribute) const {
  Stream after = *this;
  after.OnContributed(contribute);
  save.clock = after.clock_;
  save.rate_offset = after.rate_offset_;
  save.records_follow = after.records_left_ > 0;
  save.tracks.clear();
  for (int32_t f = 0; f < static_cast<int32_t>(after.tracks_.size()); ++f) {
    const Track& track = after.tracks_[f];
    SavedTrack& saved = save.tracks.emplace_back();
    saved.fragment = f;
    saved.local_version = track.local_version;
    saved.since_step = track.since_step;
    saved.data_begin = track.data_begin;
    saved.token_count = track.token_count;
    if (!track.flight.has_value()) continue;
    saved.local_version = track.flight->anchor_version;
    saved.seq = track.flight->seq;
    saved.push_step = track.flight->push_step;
    saved.pushed_step_count = track.flight->step_count;
    saved.pushed_token_count = track.flight->token_count;
  }
}

bool Stream::Fits(const PlanView& view, const SaveSummary& save) {
  if (static_cast<int32_t>(save.tracks.size()) != FragmentCount(view)) {
    return false;
  }
  for (int32_t f = 0; f < FragmentCount(view); ++f) {
    const SavedTrack& track = save.tracks[f];
    const int64_t cut = view.CutVersion(f);
    if (track.fragment != f || track.local_version < 0) return false;
    if (track.seq == 0) {
      if (cut != track.local_version) return false;
      continue;
    }
    const v1::Outcome outcome = view.FindOutcome(f, track.seq);
    const bool open = cut == track.local_version &&
                      outcome == v1::OUTCOME_UNSPECIFIED;
    const bool merged =
        cut == track.local_version + 1 && outcome == v1::OUTCOME_MERGED;
    if (!open && !merged) return false;
  }
  return true;
}

Stream::Flight Stream::ToFlight(const SavedTrack& saved) {
  return {.seq = saved.seq,
          .anchor_version = saved.local_version,
          .push_step = saved.push_step,
          .step_count = saved.pushed_step_count,
          .token_count = saved.pushed_token_count};
}

void Stream::GiveUpSave(const PlanView& view, const SaveSummary& save) {
  for (const SavedTrack& saved : save.tracks) {
    if (saved.seq > 0 && view.FindOutcome(saved.fragment, saved.seq) ==
                             v1::OUTCOME_UNSPECIFIED) {
      NoteFlight(saved.fragment, ToFlight(saved));
    }
  }
}

void Stream::Restore(const PlanView& view, const SaveSummary& save) {
  clock_ = save.clock;
  rate_offset_ = save.rate_offset;
  save_every_ = SaveEvery(view);
  records_left_ = 0;
  tracks_.assign(save.tracks.size(), Track());
  for (size_t f = 0; f < save.tracks.size(); ++f) {
    const SavedTrack& saved = save.tracks[f];
    Track& track = tracks_[f];
    track = {saved.local_version, saved.since_step, saved.data_begin,
             std::nullopt};
    track.token_count = saved.token_count;
    if (saved.seq > 0) track.flight = ToFlight(saved);
    GiveUpSteps(static_cast<int32_t>(f), saved.local_version);
  }
  // The leave of the process before told them, but they are not lost.
  for (v1::UnpushedWork& work : unpushed_) {
    work.set_restored_step_count(work.step_count());
    work.set_restored_token_count(work.token_count());
    work.set_restored_island_epoch(save.island_epoch);
    work.clear_step_count();
    work.clear_token_count();
  }
}

}  // namespace atl::worker
