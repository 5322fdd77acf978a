// VERDICT: from the shards' statistics of a sealed round to the coefficients
// that its merge takes.
//
// Pure functions of the durable state and the reports. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_VERDICTS_H_
#define COORDINATOR_CORE_ROUNDS_VERDICTS_H_

#include <cstdint>

#include "coordinator/core/state/decision.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// True if `fragment` is sealed and its merge rule needs a verdict that is not
// there yet.
bool WaitsForVerdict(const RunState& state, int32_t fragment);

// VERDICT of such a round, once every shard with a block of the fragment has
// reported its statistics; or an ABORT and a pause if none can be made.
Decision DecideVerdict(const RunState& state, const Observations& observed,
                       int32_t fragment);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_VERDICTS_H_
