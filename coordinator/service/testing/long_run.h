// Writes the store that a coordinator leaves after many rounds. Islands and
// servers are simulated against the core. For tests and benchmarks.

#pragma once

#include <cstdint>

#include "coordinator/core/coordinator.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

// Plays `round_count` rounds of run "run", a SimpleSpec with `island_count`
// islands. Leaves the run active with the next round open.
//
// Returns the store's errors. Requires: an empty store; both counts >= 1.
absl::Status WriteLongRun(const CoordinatorOptions& options, int island_count,
                          int64_t round_count, Store& store);

}  // namespace atl::coordinator
