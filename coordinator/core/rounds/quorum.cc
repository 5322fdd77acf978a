#include "coordinator/core/rounds/quorum.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rounds/measured_speeds.h"

namespace atl::coordinator {
namespace {

// True if other slots may be in the group of `slot`.
bool IsGrouped(const RunState& state, int32_t slot) {
  return state.members()[slot].record.weight_share_max() > 0;
}

}  // namespace

std::string QuorumGroup(const RunState& state, int32_t slot) {
  return IsGrouped(state, slot) ? state.members()[slot].record.token_id()
                                : absl::StrCat("#", slot);
}

int64_t CountForQuorum(const RunState& state, const std::set<int32_t>& slots) {
  std::set<std::string> groups;
  for (const int32_t slot : slots) groups.insert(QuorumGroup(state, slot));
  return static_cast<int64_t>(groups.size());
}

QuorumCount CountQuorum(const RunState& state, const Observations& observed,
                        const v1::OpenRound& open,
                        const std::vector<int32_t>& received,
                        const std::vector<absl::Time>& received_times) {
  const size_t needed = std::max(open.min_quorum(), 1);
  QuorumCount quorum;
  // The speeds of islands do not tell yet.
  if (received.size() < needed) return quorum;
  quorum.reads_speeds = true;
  std::vector<int32_t> asked;
  for (const v1::SlotPlan& plan : open.slots()) asked.push_back(plan.slot());
  const DueTimes due(state, observed, open.fragment(), asked);
  std::vector<absl::Time> times;             // Since when each group counts.
  std::map<std::string, absl::Time> groups;  // Those of more than one slot.
  for (const int32_t slot : received) {
    const absl::Time time = std::max(
        received_times[static_cast<size_t>(slot)], due.Find(slot));
    if (!IsGrouped(state, slot)) {
      times.push_back(time);
      continue;
    }
    const auto group = groups.emplace(QuorumGroup(state, slot), time).first;
    group->second = std::min(group->second, time);
  }
  for (const auto& [name, time] : groups) times.push_back(time);
  if (times.size() < needed) return quorum;
  std::sort(times.begin(), times.end());
  quorum.time = times[needed - 1];
  return quorum;
}

}  // namespace atl::coordinator
