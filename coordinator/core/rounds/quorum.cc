#include "coordinator/core/rounds/quorum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rounds/measured_speeds.h"

namespace atl::coordinator {

std::string QuorumGroup(const RunState& state, int32_t slot) {
  const storage::v1::MemberSet& member = state.members()[slot].record;
  return member.weight_share_max() > 0 ? member.token_id()
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
                        const std::map<int32_t, absl::Time>& received_times) {
  const size_t needed = std::max(open.min_quorum(), 1);
  QuorumCount quorum;
  // The speeds of islands do not tell yet.
  if (received.size() < needed) {
    quorum.text = absl::StrCat(
        CountForQuorum(state, {received.begin(), received.end()}), " of ",
        needed);
    return quorum;
  }
  quorum.reads_speeds = true;
  std::vector<int32_t> asked;
  for (const v1::SlotPlan& plan : open.slots()) asked.push_back(plan.slot());
  const DueTimes due(state, observed, open.fragment(), asked);
  std::map<std::string, absl::Time> groups;  // Since when each counts.
  for (const int32_t slot : received) {
    const absl::Time time =
        std::max(received_times.at(slot), due.Find(slot));
    const auto group = groups.emplace(QuorumGroup(state, slot), time).first;
    group->second = std::min(group->second, time);
  }
  quorum.text = absl::StrCat(groups.size(), " of ", needed);
  if (groups.size() < needed) return quorum;
  std::vector<absl::Time> times;
  for (const auto& [name, time] : groups) times.push_back(time);
  std::sort(times.begin(), times.end());
  quorum.time = times[needed - 1];
  return quorum;
}

}  // namespace atl::coordinator
