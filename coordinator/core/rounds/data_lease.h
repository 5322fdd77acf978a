// Data shards are leased to islands that deliver. If all are leased, an idle
// member yields its shard to a newcomer, or a member of a token that has too
// many.
//
// A member is idle once nothing of it was merged for kIdleRoundsMax rounds that
// counted on it: rounds that asked it, that it sat out after a refusal, or that
// passed while it was still joining. Rounds that make no version count by their
// deadlines. A round that a sample leaves it out of does not count. In an async
// run a round is as many versions as there are ready islands. A strict round
// awaits its members, so there only a joining member can be idle. Leaving and
// joining again does not end idleness. A merged contribution does, and so does a
// long absence.
//
// These notes are volatile. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// A pause of a few rounds must not cost an honest island its shard, and a
// newcomer must not wait for hours.
inline constexpr int64_t kIdleRoundsMax = 8;
// How long a round without a deadline counts as.
inline constexpr absl::Duration kIdleRoundDefault = absl::Minutes(10);

// The most of a run's data shards that islands of one token keep while others
// want one: half, rounded up.
int32_t DataShardsOfTokenMax(int32_t data_shard_count);

// Notes that a member of before joins again at `now`. It begins anew if it has
// been gone for `absent_min`.
void NoteJoin(const Member& member, absl::Duration absent_min, absl::Time now,
              ObservedMember& seen);
// Notes that it is ready: no round has asked it yet.
void NoteReady(absl::Time now, ObservedMember& seen);
// Notes which members `open` asks, which is recorded at `now`.
void NoteAsked(const RunState& state, const v1::OpenRound& open, absl::Time now,
               Observations& observed);
// Notes the members whose contributions `seal` has, and the others that the
// round counted on. Requires: `open` was its OPEN; its COMMIT is recorded.
void NoteMerged(const RunState& state, const v1::OpenRound& open,
                const v1::Seal& seal, Observations& observed);
// Time before `now` does not count: the run was paused.
void RestartIdleTime(absl::Time now, Observations& observed);

struct Yield {
  int32_t slot = 0;    // The member that yields its data shard.
  std::string reason;  // Why.
};

// The member that yields its data shard to the island of `slot` with `token_id`
// (empty: none); nullopt: none does. `old` is what was observed of that island
// before; null: it is new. Requires: the run's data is shared, and all shards
// are leased.
std::optional<Yield> FindYield(const RunState& state,
                               const Observations& observed, int32_t slot,
                               const ObservedMember* old,
                               const std::string& token_id, absl::Time now);

}  // namespace atl::coordinator
