// Decides where a run ends, and computes its clock of steps.
//
// Pure. Thread-safe. Depends only on what commits have left in the state, so
// that every replay of the log finds the same end.

#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// True if no further round of `fragment` opens: its last round is over, or the
// token budget is merged. Fragments that open together end together, once all
// are at one version and merged_token_count() has reached the budget. In
// streaming and async runs each fragment ends by the tokens merged into it.
bool IsAtEnd(const RunState& state, int32_t fragment);

// Says why the run is complete. Requires: IsAtEnd() of all fragments.
std::string EndReason(const RunState& state);

// The run's step clock at the first step of the next round of `fragment`
// (base/layout/run_length.h).
int64_t FindStartStep(const RunState& state, int32_t fragment);

}  // namespace atl::coordinator
