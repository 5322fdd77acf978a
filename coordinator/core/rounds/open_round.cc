#include "coordinator/core/rounds/open_round.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/run_length.h"
#include "coordinator/core/rounds/measured_speeds.h"
#include "coordinator/core/rounds/quorum.h"
#include "coordinator/core/rounds/run_end.h"
#include "coordinator/core/rounds/sit_out.h"
#include "coordinator/core/rounds/slot_plans.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

// Groups of idle fragments that may open now. In a streaming run each one is a
// group; otherwise all of the smallest version are one.
std::vector<std::vector<int32_t>> OpenableFragments(const RunState& state) {
  std::vector<int32_t> idle;
  int64_t version = INT64_MAX;
  for (const FragmentState& fragment : state.fragments()) {
    version = std::min(version, fragment.newest.version());
    if (fragment.phase == RoundPhase::kIdle &&
        !IsAtEnd(state, fragment.newest.fragment())) {
      idle.push_back(fragment.newest.fragment());
    }
  }
  if (IsStreaming(state.spec().schedule())) {
    std::vector<std::vector<int32_t>> openable;
    for (int32_t fragment : idle) openable.push_back({fragment});
    return openable;
  }
  std::vector<int32_t> openable;
  for (int32_t fragment : idle) {
    if (state.fragments()[fragment].newest.version() == version) {
      openable.push_back(fragment);
    }
  }
  if (openable.empty()) return {};
  return {openable};
}

// Slots whose contribution to the next attempt at `fragment` is received.
std::set<int32_t> ReceivedSlots(const RunState& state,
                                const Observations& observed,
                                int32_t fragment) {
  std::set<int32_t> slots;
  const int64_t version = state.fragments()[fragment].newest.version();
  for (const auto& [place, seen] : observed.index.Seen(fragment)) {
    if (seen.received && seen.info->anchor_version() == version) {
      slots.insert(place.first);
    }
  }
  return slots;
}

// The plans of `slots` for round `version` of `fragment` and of its group.
std::vector<v1::SlotPlan> MakeSlotPlans(const RunState& state,
                                        const Observations& observed,
                                        const std::vector<int32_t>& slots,
                                        int32_t fragment, int64_t version) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  const bool elastic = schedule.timing() == v1::TIMING_ELASTIC;
  const bool is_local = state.spec().data().fingerprint().empty();
  const auto fragment_count = static_cast<int32_t>(state.fragments().size());
  const int64_t start_step = FindStartStep(state, fragment);
  const int64_t step_count =
      PushStep(schedule, fragment_count, fragment, version) -
      StartStep(schedule, fragment_count, fragment, version);
  std::vector<int64_t> steps(slots.size(), step_count);
  if (elastic) {
    steps = ElasticSteps(
        RelativeSpeeds(state, observed, slots, step_count), step_count);
  }
  // Streaming rounds overlap: an island reads one data shard for all.
  const std::vector<std::vector<int32_t>> dealt =
      DealToSlots(state, slots, elastic && !is_local && !IsStreaming(schedule));
  std::vector<v1::SlotPlan> plans;
  for (size_t i = 0; i < slots.size(); ++i) {
    v1::SlotPlan plan;
    plan.set_slot(slots[i]);
    plan.set_step_count(steps[i]);
    plan.set_start_step(start_step);
    plan.set_data_shard(dealt[i][version % dealt[i].size()]);
    plan.set_data_position(state.DataPosition(plan.data_shard(), slots[i]));
    plans.push_back(std::move(plan));
  }
  return plans;
}

Decision DecideOpenAmong(const RunState& state, const Observations& observed,
                         const std::vector<int32_t>& openable,
                         absl::Time due) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  const int64_t version = state.fragments()[openable[0]].newest.version();
  if (state.just_restored() && schedule.timing() == v1::TIMING_STRICT) {
    // Every island pulls the restored cut before a round opens.
    for (const Member& member : state.members()) {
      if (!member.present() || member.ready()) continue;
      return {{},
              absl::StrCat("was restored to ", state.restores().back().pin_id(),
                           "; waits for island ", member.record.island_id(),
                           " to be ready")};
    }
  }
  int64_t attempt = 0;
  std::set<int32_t> received;
  for (int32_t fragment : openable) {
    attempt = std::max(attempt, state.fragments()[fragment].attempt);
    if (state.fragments()[fragment].attempt == 0) continue;
    for (int32_t slot : ReceivedSlots(state, observed, fragment)) {
      received.insert(slot);
    }
  }
  const bool is_first = version == 0 && attempt == 0;
  const int64_t needed = std::max<int64_t>(
      is_first ? schedule.island_count_min() : 1, schedule.min_quorum());
  const std::set<int32_t> candidates =
      FindAskable(state, observed, received, needed, due);
  if (static_cast<int64_t>(candidates.size()) < needed) {
    return {{},
            absl::StrCat("waits for islands: ", candidates.size(), " of ",
                         needed, " are ready for round ", version + 1,
                         DescribeSittingOut(state))};
  }
  if (const int64_t counted = CountForQuorum(state, candidates);
      counted < schedule.min_quorum()) {
    return {{},
            absl::StrCat("waits for islands: the ", candidates.size(),
                         " that are ready count ", counted, " of ",
                         schedule.min_quorum(), " for round ", version + 1,
                         ", because those of one token with a share of weight "
                         "count once together")};
  }
  const int64_t most = ContributionsMax(state.layout(), state.spec());
  std::vector<int32_t> slots = SampleSlots(
      std::vector<int32_t>(candidates.begin(), candidates.end()),
      std::min(SampleSize(candidates.size(), schedule.sample_fraction(),
                          schedule.min_quorum()),
               most),
      schedule.sample_seed(), version, attempt);
  // Received contributions count, and come before new islands.
  std::set<int32_t> expected = std::move(received);
  for (const int32_t slot : slots) {
    if (static_cast<int64_t>(expected.size()) < most) expected.insert(slot);
  }
  // A sample may have several islands that count once together.
  int64_t counted = CountForQuorum(state, expected);
  for (const int32_t slot : candidates) {
    if (counted >= schedule.min_quorum() ||
        static_cast<int64_t>(expected.size()) >= most) {
      break;
    }
    std::set<int32_t> more = expected;
    more.insert(slot);
    const int64_t more_counted = CountForQuorum(state, more);
    if (more_counted == counted) continue;
    expected = std::move(more);
    counted = more_counted;
  }
  slots.assign(expected.begin(), expected.end());
  const std::vector<v1::SlotPlan> plans =
      MakeSlotPlans(state, observed, slots, openable[0], version);
  Decision decision;
  decision.reason =
      absl::StrCat("opens round ", version + 1, " for ", slots.size(), " of ",
                   candidates.size(), " islands");
  for (int32_t fragment : openable) {
    storage::v1::Record record;
    v1::OpenRound& open = *record.mutable_round_opened();
    open.set_fragment(fragment);
    open.set_version(version);
    open.set_attempt(state.fragments()[fragment].attempt);
    for (const v1::SlotPlan& plan : plans) *open.add_slots() = plan;
    open.set_min_quorum(schedule.min_quorum());
    *open.mutable_grace_window() = schedule.grace_window();
    *open.mutable_deadline() = schedule.round_deadline();
    decision.records.push_back(std::move(record));
  }
  return decision;
}

}  // namespace

Decision DecideOpen(const RunState& state, const Observations& observed,
                    absl::Time due) {
  Decision all;
  for (const std::vector<int32_t>& openable : OpenableFragments(state)) {
    Decision decision = DecideOpenAmong(state, observed, openable, due);
    if (all.reason.empty() ||
        (all.records.empty() && !decision.records.empty())) {
      all.reason = decision.reason;
    }
    for (storage::v1::Record& record : decision.records) {
      all.records.push_back(std::move(record));
    }
  }
  return all;
}

std::vector<std::vector<int32_t>> DealToSlots(const RunState& state,
                                              const std::vector<int32_t>& slots,
                                              bool adopt_free) {
  std::set<int32_t> leased;
  for (const Member& member : state.members()) {
    if (member.present()) leased.insert(member.record.data_shard());
  }
  std::vector<int32_t> primary;
  for (int32_t slot : slots) {
    primary.push_back(state.members()[slot].record.data_shard());
  }
  return DealDataShards(primary, leased, state.spec().data().data_shard_count(),
                        adopt_free);
}

}  // namespace atl::coordinator
