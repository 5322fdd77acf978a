// A process of an island other than process 0: does what that one decides, on
// the part of the model that it holds. It talks to the servers, and with the
// coordinator not at all.

#pragma once

#include "absl/status/statusor.h"
#include "worker/island/options.h"

namespace atl::worker {

// Works until process 0 says that it is over, and returns how it ended there.
// Requires: links.group, of which this is not process 0.
//
// What it returns of progress is its own: steps, tokens of the island, bytes of
// this process. Errors: that of process 0; CANCELLED: stopped at once here;
// UNAVAILABLE with ISLAND_PROCESS_LOST: another process is gone.
absl::StatusOr<IslandProgress> RunMember(const RunIslandOptions& options,
                                         const IslandLinks& links);

}  // namespace atl::worker
