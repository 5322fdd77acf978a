// Islands that sit rounds out. A refused contribution of an elastic run counts
// as an absent island: the run does not pause, and does not ask the island
// again for 1 round, then 2, 4 and so on (Member::sits_out_until).
//
// If too few others are ready, an island is asked earlier: 10 s after its
// refusal, then 20 s, 40 s and so on, at most 10 minutes.
//
// Pure functions of the state and the time. Thread-safe.

#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// True if no round asks `member` at the present commit_seq.
bool SitsOut(const RunState& state, const Member& member);

// The slots that an OPEN may ask: `received`, and the ready islands that are not
// away and do not sit out. If these are fewer than `needed`, or count less than the quorum
// (quorum.h), also those that sit out and whose wait has ended by `due`, as many
// as are missing, the longest waiting first.
std::set<int32_t> FindAskable(const RunState& state,
                              const Observations& observed,
                              std::set<int32_t> received, int64_t needed,
                              absl::Time due);

// When the next wait of an island that sits out ends, after `due`.
absl::Time SitOutTimer(const RunState& state, absl::Time due);

// "; a sits out: its newest contribution was refused: WHY", and how many more
// do; empty if no ready island sits out.
std::string DescribeSittingOut(const RunState& state);

// Requires: the newest contribution of `member` was refused.
v1::SittingOut ToSittingOut(const Member& member);

}  // namespace atl::coordinator
