#include "coordinator/core/rounds/async_rounds.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/run_timing.h"
#include "coordinator/core/rounds/measured_speeds.h"
#include "coordinator/core/rounds/open_round.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/rounds/run_end.h"
#include "coordinator/core/rounds/sit_out.h"
#include "coordinator/core/rounds/slot_plans.h"

namespace atl::coordinator {
namespace {

// The data shard that was read least of those that `slot` may read.
int32_t LeastRead(const RunState& state, const std::vector<int32_t>& dealt,
                  int32_t slot) {
  return *std::min_element(
      dealt.begin(), dealt.end(), [&](int32_t a, int32_t b) {
        return state.DataPosition(a, slot) < state.DataPosition(b, slot);
      });
}

// The next plan of each of `slots` for `fragment`, by slot.
std::map<int32_t, v1::SlotPlan> MakeNewPlans(const RunState& state,
                                             const Observations& observed,
                                             const std::vector<int32_t>& slots,
                                             int32_t fragment) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  const std::vector<int64_t> steps =
      DyluSteps(RelativeSpeeds(state, observed, slots,
                               schedule.inner_step_count()),
                schedule.inner_step_count());
  const bool is_local = state.spec().data().fingerprint().empty();
  const std::vector<std::vector<int32_t>> dealt =
      DealToSlots(state, slots, /*adopt_free=*/!is_local);
  std::map<int32_t, v1::SlotPlan> plans;
  for (size_t i = 0; i < slots.size(); ++i) {
    v1::SlotPlan& plan = plans[slots[i]];
    plan.set_slot(slots[i]);
    plan.set_step_count(steps[i]);
    plan.set_start_step(FindStartStep(state, fragment));
    plan.set_data_shard(LeastRead(state, dealt[i], slots[i]));
    plan.set_data_position(state.DataPosition(plan.data_shard(), slots[i]));
  }
  return plans;
}

bool IsSealed(const FragmentState& fragment, const v1::ContributionKey& key) {
  const auto& sealed = fragment.sealed.seal().contributions();
  return std::any_of(sealed.begin(), sealed.end(), [&](const auto& other) {
    return other.key().slot() == key.slot() && other.key().seq() == key.seq();
  });
}

}  // namespace

Decision DecideAsyncOpen(const RunState& state, const Observations& observed,
                         absl::Time due) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  Decision decision;
  for (const FragmentState& fragment : state.fragments()) {
    const int64_t version = fragment.newest.version();
    if (fragment.phase != RoundPhase::kIdle ||
        IsAtEnd(state, fragment.newest.fragment())) {
      continue;
    }
    const bool is_first = version == 0 && fragment.attempt == 0;
    const int64_t needed = is_first ? schedule.island_count_min() : 1;
    const std::set<int32_t> askable =
        FindAskable(state, observed, {}, needed, due);
    if (static_cast<int64_t>(askable.size()) < needed) {
      decision.reason =
          absl::StrCat("waits for islands: ", askable.size(), " of ", needed,
                       " are ready for version ", version,
                       DescribeSittingOut(state));
      continue;
    }
    std::map<int32_t, v1::SlotPlan> plans = fragment.standing_plans;
    std::erase_if(plans, [&](const auto& plan) {
      return IsOverdue(state, observed, fragment.newest.fragment(), plan.first);
    });
    plans.merge(MakeNewPlans(state, observed, {askable.begin(), askable.end()},
                             fragment.newest.fragment()));
    storage::v1::Record record;
    v1::OpenRound& open = *record.mutable_round_opened();
    open.set_fragment(fragment.newest.fragment());
    open.set_version(version);
    open.set_attempt(fragment.attempt);
    for (auto& [slot, plan] : plans) *open.add_slots() = std::move(plan);
    open.set_min_quorum(1);
    decision.records.push_back(std::move(record));
  }
  if (!decision.records.empty()) {
    const v1::OpenRound& open = decision.records[0].round_opened();
    decision.reason = absl::StrCat("opens version ", open.version(), " for ",
                                   open.slots_size(), " islands");
  }
  return decision;
}

Decision DecideAsyncSeal(const RunState& state, const Observations& observed,
                         int32_t fragment, absl::Time due,
                         RoundTimers& timers) {
  const FragmentState& at = state.fragments()[fragment];
  const int64_t version = at.newest.version();
  const std::string name =
      absl::StrCat("fragment ", fragment, ", version ", version);
  const SeenContributions& seen = observed.index.Seen(fragment);
  std::vector<int32_t> planned;
  for (const auto& [slot, plan] : at.standing_plans) planned.push_back(slot);
  const DueTimes due_times(state, observed, fragment, planned);
  timers.quorum_time = absl::InfiniteFuture();
  const SeenContribution* oldest = nullptr;  // By anchor, then (slot, seq).
  for (const auto& [place, contribution] : seen) {
    if (!contribution.received ||
        !IsFreshEnough(state.spec().schedule(),
                       contribution.info->anchor_version(), version)) {
      continue;
    }
    const absl::Time due_time =
        state.members()[place.first].enrolled()
            ? due_times.Find(place.first)
            : absl::InfinitePast();
    if (due_time > due) {
      timers.quorum_time = std::min(timers.quorum_time, due_time);
      continue;
    }
    if (oldest == nullptr ||
        contribution.info->anchor_version() < oldest->info->anchor_version()) {
      oldest = &contribution;
    }
  }
  if (oldest != nullptr) {
    const std::string& island =
        state.members()[oldest->key.slot()].record.island_id();
    return {
        {MakeSeal(state, fragment, {oldest})},
        absl::StrCat("seals ", name, " with the contribution of ", island,
                     ", made from version ", oldest->info->anchor_version())};
  }
  const std::set<int32_t> askable =
      FindAskable(state, observed, {}, /*needed=*/1, due);
  std::vector<std::string> newcomers;
  std::vector<std::string> asked;
  for (const Member& member : state.members()) {
    const std::string& island = member.record.island_id();
    if (at.standing_plans.contains(member.record.slot())) {
      asked.push_back(island);
    } else if (askable.contains(member.record.slot())) {
      newcomers.push_back(island);
    }
  }
  for (const v1::SlotPlan& plan : at.open.slots()) {
    const Member& member = state.members()[plan.slot()];
    if (at.standing_plans.contains(plan.slot()) || !member.ready() ||
        askable.contains(plan.slot())) {
      continue;
    }
    const std::string reason =
        absl::StrCat(name, ": no longer asks ", member.record.island_id(),
                     ": its contribution was refused");
    return {{MakeAbort(state, fragment, reason, {})}, reason};
  }
  if (!newcomers.empty()) {
    const std::string reason =
        absl::StrCat(name, ": asks ", absl::StrJoin(newcomers, ", "), " too");
    return {{MakeAbort(state, fragment, reason, {})}, reason};
  }
  return {{},
          asked.empty()
              ? absl::StrCat(name, ": waits for an island to join or come back")
              : absl::StrCat(name, ": waits for a contribution of ",
                             absl::StrJoin(asked, ", "),
                             DescribeSittingOut(state))};
}

std::vector<v1::ContributionOutcome> SettleAsync(const RunState& state,
                                                 const Observations& observed,
                                                 int32_t fragment) {
  const FragmentState& at = state.fragments()[fragment];
  const int64_t version = at.newest.version();
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  const bool is_over = state.ended() || IsAtEnd(state, fragment);
  std::vector<v1::ContributionOutcome> outcomes;
  for (const auto& [place, seen] : observed.index.Seen(fragment)) {
    if (IsSealed(at, seen.key)) continue;
    if (state.state() == v1::RUN_STATE_CANCELLED) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
    } else if (!seen.refusal.empty()) {
      outcomes.push_back(MakeRejection(state, seen));
    } else if (!IsFreshEnough(schedule, seen.info->anchor_version(), version)) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_STALE));
    } else if (is_over) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
    }
  }
  return outcomes;
}

}  // namespace atl::coordinator
