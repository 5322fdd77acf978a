// Writes what a coordinator has on its disk after a run of many rounds: its
// islands and servers are played against the core, and what it decides goes to
// a store. For tests and benchmarks.

#ifndef COORDINATOR_SERVICE_LONG_RUN_H_
#define COORDINATOR_SERVICE_LONG_RUN_H_

#include <cstdint>

#include "coordinator/core/coordinator.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

// Runs "run" of SimpleSpec with `island_count` islands for `round_count`
// rounds, and leaves it active with the next one open.
//
// The store's errors. Requires: an empty store; both counts >= 1.
absl::Status WriteLongRun(const CoordinatorOptions& options, int island_count,
                          int64_t round_count, Store& store);

}  // namespace atl::coordinator

#endif  // COORDINATOR_SERVICE_LONG_RUN_H_
