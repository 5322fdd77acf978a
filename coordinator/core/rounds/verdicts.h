// VERDICT: merge coefficients of a sealed round from shard statistics.
//
// Pure functions of the durable state and the reports. Thread-safe.

#pragma once

#include <cstdint>

#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// True if `fragment` is sealed and its merge rule still needs a verdict.
bool WaitsForVerdict(const RunState& state, int32_t fragment);

// VERDICT of such a round, once every shard with a block of the fragment has
// reported its statistics. An ABORT and a pause if no verdict is possible.
Decision DecideVerdict(const RunState& state, const Observations& observed,
                       int32_t fragment);

}  // namespace atl::coordinator
