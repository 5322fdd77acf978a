// OPEN: which round begins, for which islands, with which steps and data.
//
// Pure functions of the durable state and the reports. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// OPENs of the fragments that may open now. Fragments of one version open
// together, so that an island trains once for all of them. In a streaming run
// each fragment opens its own next round after its COMMIT. Expected are the
// ready islands, or the round's sample of them. A reopened round also expects
// the islands of received contributions, which outlive an attempt. Islands that
// sit out are not asked (sit_out.h; `due` is the newest Tick's time).
Decision DecideOpen(const RunState& state, const Observations& observed,
                    absl::Time due);

// The data shards that each of `slots` may read, in order: its own, and with
// `adopt_free` its part of those that no present island leases (slot_plans.h).
std::vector<std::vector<int32_t>> DealToSlots(const RunState& state,
                                              const std::vector<int32_t>& slots,
                                              bool adopt_free);

}  // namespace atl::coordinator
