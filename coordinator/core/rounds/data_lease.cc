#include "coordinator/core/rounds/data_lease.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/run_timing.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/sit_out.h"

namespace atl::coordinator {
namespace {

bool IsStrict(const RunState& state) {
  return state.spec().schedule().timing() == v1::TIMING_STRICT;
}

int64_t CountReady(const RunState& state) {
  return std::count_if(state.members().begin(), state.members().end(),
                       [](const Member& member) { return member.ready(); });
}

absl::Duration IdleTime(const ObservedMember& seen, absl::Time now) {
  if (seen.idle_since == absl::InfiniteFuture()) return seen.idle_duration;
  return seen.idle_duration +
         std::max(absl::ZeroDuration(), now - seen.idle_since);
}

// From `now` on no round counts on it.
void Stop(ObservedMember& seen, absl::Time now) {
  seen.idle_duration = IdleTime(seen, now);
  seen.idle_since = absl::InfiniteFuture();
}

void Forget(ObservedMember& seen) {
  seen.idle_round_count = 0;
  seen.idle_duration = absl::ZeroDuration();
  seen.idle_since = absl::InfiniteFuture();
}

bool IsIdle(const RunState& state, const ObservedMember& seen, absl::Time now) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  int64_t rounds_max = kIdleRoundsMax;
  if (IsAsync(schedule)) {
    rounds_max *= std::max<int64_t>(1, CountReady(state));
  }
  if (seen.idle_round_count >= rounds_max) return true;
  absl::Duration round = FromProto(schedule.round_deadline());
  if (round <= absl::ZeroDuration()) round = kIdleRoundDefault;
  return state.state() == v1::RUN_STATE_ACTIVE &&
         IdleTime(seen, now) >= kIdleRoundsMax * round;
}

std::set<int32_t> ListAsked(const v1::OpenRound& open) {
  std::set<int32_t> slots;
  for (const v1::SlotPlan& plan : open.slots()) slots.insert(plan.slot());
  return slots;
}

// Slots with a contribution that a round still has to take.
std::set<int32_t> ListReceived(const RunState& state,
                               const Observations& observed) {
  std::set<int32_t> slots;
  for (const FragmentState& fragment : state.fragments()) {
    for (const auto& [place, seen] :
         observed.index.Seen(fragment.newest.fragment())) {
      if (seen.received) slots.insert(place.first);
    }
    for (const auto& sealed : fragment.sealed.seal().contributions()) {
      slots.insert(sealed.key().slot());
    }
  }
  return slots;
}

std::optional<Yield> FindIdle(const RunState& state,
                              const Observations& observed, int32_t newcomer,
                              absl::Time now) {
  std::vector<std::pair<absl::Duration, int32_t>> idle;
  for (const Member& member : state.members()) {
    const int32_t slot = member.record.slot();
    const ObservedMember& seen = observed.members[slot];
    if (member.present() && slot != newcomer &&
        !(member.ready() && IsStrict(state)) && IsIdle(state, seen, now)) {
      idle.emplace_back(IdleTime(seen, now), slot);
    }
  }
  // Without an idle member a Join costs no look at the shards' reports.
  if (idle.empty()) return std::nullopt;
  const std::set<int32_t> received = ListReceived(state, observed);
  std::erase_if(idle, [&received](const auto& candidate) {
    return received.contains(candidate.second);
  });
  const auto longest = std::max_element(idle.begin(), idle.end());
  if (longest == idle.end()) return std::nullopt;
  return Yield{longest->second,
               absl::StrCat("it is idle: nothing of it was merged for ",
                            kIdleRoundsMax, " rounds")};
}

std::optional<Yield> FindExcess(const RunState& state, int32_t newcomer,
                                const std::string& token_id) {
  std::map<std::string, int32_t> counts;
  for (const Member& member : state.members()) {
    if (member.present() && member.enrolled()) {
      ++counts[member.record.token_id()];
    }
  }
  const int32_t most =
      DataShardsOfTokenMax(state.spec().data().data_shard_count());
  // The newest slot, because its island has delivered least.
  for (auto member = state.members().rbegin(); member != state.members().rend();
       ++member) {
    const std::string& owner = member->record.token_id();
    if (!member->present() || member->record.slot() == newcomer ||
        owner.empty() || owner == token_id || counts[owner] <= most) {
      continue;
    }
    return Yield{member->record.slot(),
                 absl::StrCat("the islands of its token, ", owner, ", have ",
                              counts[owner], " data shards, and may keep ",
                              most, " while others want one")};
  }
  return std::nullopt;
}

}  // namespace

int32_t DataShardsOfTokenMax(int32_t data_shard_count) {
  return data_shard_count / 2 + data_shard_count % 2;
}

void NoteJoin(const Member& member, absl::Duration absent_min, absl::Time now,
              ObservedMember& seen) {
  if (!member.present()) {
    Stop(seen, std::min(now, member.set_time));
    if (now - member.set_time >= absent_min) Forget(seen);
  }
  seen.idle_since = std::min(seen.idle_since, now);
}

void NoteReady(absl::Time now, ObservedMember& seen) { Stop(seen, now); }

void NoteAsked(const RunState& state, const v1::OpenRound& open, absl::Time now,
               Observations& observed) {
  const std::set<int32_t> asked = ListAsked(open);
  for (const Member& member : state.members()) {
    if (!member.ready()) continue;
    ObservedMember& seen = observed.members[member.record.slot()];
    if (asked.contains(member.record.slot())) {
      seen.idle_since = std::min(seen.idle_since, now);
    } else if (!SitsOut(state, member) && !seen.away) {
      Stop(seen, now);
    }
  }
}

void NoteMerged(const RunState& state, const v1::OpenRound& open,
                const v1::Seal& seal, Observations& observed) {
  std::set<int32_t> merged;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    merged.insert(sealed.key().slot());
  }
  const std::set<int32_t> asked = ListAsked(open);
  for (const Member& member : state.members()) {
    const int32_t slot = member.record.slot();
    ObservedMember& seen = observed.members[slot];
    if (merged.contains(slot)) {
      Forget(seen);
      continue;
    }
    // All fragments of a round would count it again.
    if (seal.fragment() != 0 || !member.present()) continue;
    if (!member.ready() || asked.contains(slot) || SitsOut(state, member) ||
        seen.away) {
      ++seen.idle_round_count;
    }
  }
}

void RestartIdleTime(absl::Time now, Observations& observed) {
  for (ObservedMember& seen : observed.members) {
    if (seen.idle_since != absl::InfiniteFuture()) seen.idle_since = now;
  }
}

std::optional<Yield> FindYield(const RunState& state,
                               const Observations& observed, int32_t slot,
                               const ObservedMember* old,
                               const std::string& token_id, absl::Time now) {
  // An idle island takes no shard of another one.
  if (old != nullptr && IsIdle(state, *old, now)) return std::nullopt;
  std::optional<Yield> idle = FindIdle(state, observed, slot, now);
  if (idle.has_value() || IsStrict(state)) return idle;
  return FindExcess(state, slot, token_id);
}

}  // namespace atl::coordinator
