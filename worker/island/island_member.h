// A process of an island other than process 0: executes process 0's commands
// on its part of the model. It calls the servers, never the coordinator.

#pragma once

#include "absl/status/statusor.h"
#include "worker/island/options.h"

namespace atl::worker {

// Works until process 0 ends the island. Requires: links.group. The progress
// has the island's steps and tokens, and this process's bytes.
//
// Errors of process 0. CANCELLED: stopped at once here. UNAVAILABLE with the
// reason ISLAND_PROCESS_LOST: another process is gone.
absl::StatusOr<IslandProgress> RunMember(const RunIslandOptions& options,
                                         const IslandLinks& links);

}  // namespace atl::worker
