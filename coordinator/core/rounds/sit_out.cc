#include "coordinator/core/rounds/sit_out.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rounds/quorum.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kWaitMin = absl::Seconds(10);
constexpr absl::Duration kWaitMax = absl::Minutes(10);

// When `member`, which sits out, may be asked for want of others.
absl::Time WaitEnd(const Member& member) {
  const int doublings = std::clamp(member.refused_count - 1, 0, 6);
  return member.refusal_time + std::min(kWaitMin * (1 << doublings), kWaitMax);
}

}  // namespace

bool SitsOut(const RunState& state, const Member& member) {
  return member.refused_count > 0 &&
         state.commit_seq() < member.sits_out_until;
}

std::set<int32_t> FindAskable(const RunState& state,
                              const Observations& observed,
                              std::set<int32_t> received, int64_t needed,
                              absl::Time due) {
  std::set<int32_t> askable = std::move(received);
  std::vector<std::pair<absl::Time, int32_t>> waited;
  for (const Member& member : state.members()) {
    const int32_t slot = member.record.slot();
    if (!member.ready() || observed.members[slot].away ||
        askable.contains(slot)) {
      continue;
    }
    if (!SitsOut(state, member)) {
      askable.insert(slot);
    } else if (WaitEnd(member) <= due) {
      waited.emplace_back(member.refusal_time, slot);
    }
  }
  std::sort(waited.begin(), waited.end());
  for (const auto& [since, slot] : waited) {
    if (static_cast<int64_t>(askable.size()) >= needed &&
        CountForQuorum(state, askable) >=
            state.spec().schedule().min_quorum()) {
      break;
    }
    askable.insert(slot);
  }
  return askable;
}

absl::Time SitOutTimer(const RunState& state, absl::Time due) {
  absl::Time timer = absl::InfiniteFuture();
  for (const Member& member : state.members()) {
    if (!member.ready() || !SitsOut(state, member)) continue;
    const absl::Time end = WaitEnd(member);
    if (end > due) timer = std::min(timer, end);
  }
  return timer;
}

std::string DescribeSittingOut(const RunState& state) {
  const Member* first = nullptr;
  int more = 0;
  for (const Member& member : state.members()) {
    if (!member.ready() || !SitsOut(state, member)) continue;
    if (first != nullptr) {
      ++more;
    } else {
      first = &member;
    }
  }
  if (first == nullptr) return "";
  return absl::StrCat(
      "; ", first->record.island_id(),
      more > 0 ? absl::StrCat(" and ", more, " more sit") : " sits",
      " out: its newest contribution was refused: ", first->refusal);
}

v1::SittingOut ToSittingOut(const Member& member) {
  v1::SittingOut sitting;
  sitting.set_island_id(member.record.island_id());
  sitting.set_refused_count(member.refused_count);
  sitting.set_reason(member.refusal);
  sitting.set_until_commit_seq(member.sits_out_until);
  return sitting;
}

}  // namespace atl::coordinator
