#include "coordinator/core/rounds/measured_speeds.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/layout/fragment_schedule.h"
#include "base/layout/run_length.h"
#include "base/layout/run_timing.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/lower_median.h"

namespace atl::coordinator {
namespace {

// The lower median of the positive values; 0 without any.
template <typename Values>
double MedianOfKnown(const Values& values) {
  std::vector<double> known;
  for (const double value : values) {
    if (value > 0) known.push_back(value);
  }
  return LowerMedian(std::move(known));
}

// Inner steps a second, as the island says; 0 if it does not.
double ClaimedSpeed(const RunState& state, const Observations& observed,
                    int32_t slot) {
  const ObservedMember& member = observed.members[slot];
  double tokens =
      member.progress.has_value() ? member.progress->tokens_per_second() : 0;
  if (!(tokens > 0)) {
    tokens = state.members()[slot].record.capabilities().tokens_per_second();
  }
  // A trainer of its own may count fewer tokens a step than the run has.
  return tokens / (member.tokens_a_step > 0
                       ? member.tokens_a_step
                       : static_cast<double>(TokensAStep(state.spec())));
}

// False if there is nothing to measure.
bool Measure(const AskedSlot& asked, int64_t step_count, absl::Time now,
             ObservedMember& member) {
  // Fragments that open together are one measurement.
  if (asked.plan_time <= member.speed_plan_time || asked.plan_time >= now) {
    return false;
  }
  member.speed_plan_time = asked.plan_time;
  member.speeds.push_back(static_cast<double>(step_count) /
                          absl::ToDoubleSeconds(now - asked.plan_time));
  if (member.speeds.size() > kSpeedsKept) member.speeds.pop_front();
  return true;
}

// The share of a round's time that the island's pushes leave for its steps.
double TrainingShare(const RunState& state, const ObservedMember& member,
                     double reference, int64_t inner_step_count) {
  if (IsStreaming(state.spec().schedule())) return 1;  // It trains meanwhile.
  const double push =
      absl::ToDoubleSeconds(member.phases.MedianPush(kSpeedsKept));
  const double round = static_cast<double>(inner_step_count) / reference;
  return std::max(0.0, 1 - push / round);
}

// v_w of measured_speeds.h; zeros if nothing is known.
std::vector<double> KnownSpeeds(const RunState& state,
                                const Observations& observed,
                                const std::vector<int32_t>& slots) {
  std::vector<double> speeds, claims;
  for (const int32_t slot : slots) {
    speeds.push_back(MeasuredSpeed(observed.members[slot]));
    claims.push_back(ClaimedSpeed(state, observed, slot));
  }
  double median = MedianOfKnown(speeds);
  if (median == 0) median = MedianOfKnown(claims);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (speeds[i] > 0) continue;
    speeds[i] = claims[i] > 0 ? std::min(claims[i], median) : median;
  }
  return speeds;
}

bool IsOverdue(const RunState& state, const FragmentState& fragment,
               const AskedSlot& asked) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  return IsAsync(schedule) && asked.seq == 0 &&
         !IsFreshEnough(schedule, asked.plan_version,
                        fragment.newest.version());
}

}  // namespace

bool IsOverdue(const RunState& state, const Observations& observed,
               int32_t fragment, int32_t slot) {
  const std::map<int32_t, AskedSlot>& asked = observed.asked[fragment].slots;
  const auto found = asked.find(slot);
  return found != asked.end() &&
         IsOverdue(state, state.fragments()[fragment], found->second);
}

void NotePlans(const RunState& state, const v1::OpenRound& open, absl::Time now,
               Observations& observed) {
  const FragmentState& fragment = state.fragments()[open.fragment()];
  AskedSlots& asked = observed.asked[open.fragment()];
  const bool is_async = IsAsync(state.spec().schedule());
  std::map<int32_t, AskedSlot> known;
  if (is_async || asked.version == open.version()) known.swap(asked.slots);
  // Before this coordinator's start the islands may have had these plans.
  const bool may_be_older = asked.version == -1 && open.attempt() > 0;
  asked.version = open.version();
  asked.slots.clear();
  for (const v1::SlotPlan& plan : open.slots()) {
    const auto old = known.find(plan.slot());
    v1::ContributionKey key;
    key.set_run_epoch(state.run_epoch());
    key.set_fragment(open.fragment());
    key.set_slot(plan.slot());
    const bool stands =
        is_async ? fragment.standing_plans.contains(plan.slot()) &&
                       (old == known.end() ||
                        !IsOverdue(state, fragment, old->second))
                 : old != known.end() || may_be_older;
    if (old != known.end()) key.set_seq(old->second.seq);
    const bool is_decided = key.seq() > 0 && !IsUndecided(state, key);
    if (stands && !is_decided) {
      if (old == known.end()) continue;
      asked.slots[plan.slot()] = old->second;
    } else {
      asked.slots[plan.slot()].plan_time = now;
      asked.slots[plan.slot()].plan_version = open.version();
    }
    asked.slots[plan.slot()].step_count = plan.step_count();
  }
}

ReceivedNote NoteReceived(const RunState& state, int32_t number, absl::Time now,
                          Observations& observed) {
  ReceivedNote note;
  const bool is_async = IsAsync(state.spec().schedule());
  const FragmentState& fragment = state.fragments()[number];
  AskedSlots& asked = observed.asked[number];
  for (auto plan = asked.slots.begin(); is_async && plan != asked.slots.end();
       ++plan) {
    const auto& [slot, one] = *plan;
    if (!IsOverdue(state, fragment, one)) continue;
    ObservedMember& member = observed.members[slot];
    note.has_measured |= Measure(one, one.step_count, now, member);
    note.must_repeat |= one.plan_time > member.speed_plan_time;
  }
  FragmentContributions& all = observed.index.fragments[number];
  for (const SlotSeq& place : TakePlaces(all.unmeasured)) {
    const auto found = all.seen.find(place);
    const auto slot = asked.slots.find(place.first);
    if (found == all.seen.end() || slot == asked.slots.end()) continue;
    const SeenContribution& seen = found->second;
    if (!seen.received || slot->second.seq != 0 ||
        (!is_async && seen.info->anchor_version() != asked.version)) {
      continue;
    }
    slot->second.seq = place.second;
    ObservedMember& member = observed.members[place.first];
    const int64_t step_count = seen.info->step_count();
    member.tokens_a_step = static_cast<double>(seen.info->token_count()) /
                           static_cast<double>(step_count);
    Measure(slot->second, std::min(step_count, slot->second.step_count), now,
            member);
    // Also changes how its claim is read.
    note.has_measured = true;
  }
  return note;
}

double MeasuredSpeed(const ObservedMember& member) {
  return MedianOfKnown(member.speeds);
}

std::vector<double> RelativeSpeeds(const RunState& state,
                                   const Observations& observed,
                                   const std::vector<int32_t>& slots,
                                   int64_t inner_step_count) {
  std::vector<double> speeds = KnownSpeeds(state, observed, slots);
  const double reference = MedianOfKnown(speeds);
  if (!(reference > 0)) return std::vector<double>(slots.size(), 1.0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const double claim = ClaimedSpeed(state, observed, slots[i]);
    if (claim > 0) {
      const double share = TrainingShare(state, observed.members[slots[i]],
                                         reference, inner_step_count);
      speeds[i] = std::min(speeds[i], claim * share);
    }
    speeds[i] /= reference;
  }
  return speeds;
}

DueTimes::DueTimes(const RunState& state, const Observations& observed,
                   int32_t fragment, const std::vector<int32_t>& slots)
    : asked_(observed.asked[fragment]),
      round_time_(-absl::InfiniteDuration()) {
  const double reference = MedianOfKnown(KnownSpeeds(state, observed, slots));
  if (!(reference > 0)) return;
  int64_t most = 0;
  for (const auto& [slot, plan] : asked_.slots) {
    most = std::max(most, plan.step_count);
  }
  round_time_ = absl::Seconds(static_cast<double>(most) / reference);
}

absl::Time DueTimes::Find(int32_t slot) const {
  const auto plan = asked_.slots.find(slot);
  return plan == asked_.slots.end() ? absl::InfinitePast()
                                    : plan->second.plan_time + round_time_;
}

}  // namespace atl::coordinator
