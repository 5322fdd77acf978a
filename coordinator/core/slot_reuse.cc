#include "coordinator/core/slot_reuse.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/rounds/contributions.h"

namespace atl::coordinator {
namespace {

void AddSlots(const v1::Seal& seal, std::set<int32_t>& slots) {
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    slots.insert(sealed.key().slot());
  }
}

// Slots that a shard or a server's plan may still name.
std::set<int32_t> ListSlotsInUse(const RunState& state,
                                 const Observations& observed) {
  std::set<int32_t> slots;
  for (const FragmentState& fragment : state.fragments()) {
    for (const auto& [place, seen] :
         observed.index.Seen(fragment.newest.fragment())) {
      slots.insert(place.first);
    }
    AddSlots(fragment.sealed.seal(), slots);
  }
  const int64_t persisted = PersistedCommitSeq(state, observed);
  for (const auto& recent : state.recent_commits()) {
    if (recent.commit().commit_seq() <= persisted) continue;
    AddSlots(recent.seal(), slots);
    for (const v1::ContributionOutcome& outcome : recent.commit().outcomes()) {
      slots.insert(outcome.key().slot());
    }
  }
  return slots;
}

bool IsGone(const Member& member, absl::Time now, absl::Duration absent_min) {
  const v1::IslandState state = member.record.state();
  return (state == v1::ISLAND_STATE_LEFT || state == v1::ISLAND_STATE_LOST) &&
         now - member.set_time >= absent_min &&
         // False seqs may have used up the slot's.
         member.record.next_seq() < kSeqMax / 2;
}

}  // namespace

std::optional<int32_t> FindReusableSlot(const RunState& state,
                                        const Observations& observed,
                                        absl::Time now,
                                        absl::Duration absent_min) {
  // A shard that has not reported may have contributions of any island.
  const bool all_reported = std::all_of(
      observed.shards.begin(), observed.shards.end(),
      [](const ObservedShard& shard) { return shard.reported; });
  if (!all_reported) return std::nullopt;
  const std::set<int32_t> in_use = ListSlotsInUse(state, observed);
  std::set<int32_t> asked;
  for (const FragmentState& fragment : state.fragments()) {
    for (const v1::SlotPlan& plan : fragment.open.slots()) {
      asked.insert(plan.slot());
    }
  }
  std::optional<std::tuple<bool, absl::Time, int32_t>> best;
  for (const Member& member : state.members()) {
    const int32_t slot = member.record.slot();
    if (!IsGone(member, now, absent_min) || in_use.contains(slot)) continue;
    const std::tuple<bool, absl::Time, int32_t> candidate = {
        asked.contains(slot), member.set_time, slot};
    if (!best.has_value() || candidate < *best) best = candidate;
  }
  if (!best.has_value()) return std::nullopt;
  return std::get<int32_t>(*best);
}

}  // namespace atl::coordinator
