// Where a run ends, and where its clock of steps stands.
//
// Pure. Thread-safe. Functions of what commits have left alone, so that whoever
// replays the log finds the same end.

#ifndef COORDINATOR_CORE_ROUNDS_RUN_END_H_
#define COORDINATOR_CORE_ROUNDS_RUN_END_H_

#include <cstdint>
#include <string>

#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// True if no round of `fragment` opens any more: it has had its last round, or
// the budget of tokens is merged. Fragments that open together end together,
// once all are at one version and merged_token_count() is at the budget; those
// of a streaming or an async run each by what was merged into them.
bool IsAtEnd(const RunState& state, int32_t fragment);

// Why the run is complete, in a sentence. Requires: IsAtEnd() of all fragments.
std::string EndReason(const RunState& state);

// Number on the run's clock of the first step of the next round of `fragment`
// (base/layout/run_length.h).
int64_t FindStartStep(const RunState& state, int32_t fragment);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_RUN_END_H_
