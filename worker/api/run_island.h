// Runs an island, from its join to the end of the run. RunIsland blocks on the
// caller's thread, which computes; two more threads talk to the coordinator. It
// prints nothing: progress goes to a callback, news for operators to the log.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/held_layout.h"
#include "server/client/parameter_client.h"
#include "worker/island/options.h"

namespace atl::worker {

// Runs an island until its run ends or it is stopped; returns its last state.
//
// INVALID_ARGUMENT, NOT_FOUND: an id, the data or the run is wrong; the message
// gives a remedy. FAILED_PRECONDITION: the run has ended (reason RUN_COMPLETED
// or RUN_CANCELLED), the data is not the run's, or place.device does not exist.
// ABORTED: another process joined as this island. CANCELLED: the run was
// cancelled (RUN_CANCELLED), or the island stopped at once or for a restart.
// UNAVAILABLE: the coordinator was away for too long, or, with the reason
// ISLAND_PROCESS_LOST, the island lost a process. PERMISSION_DENIED: its
// processes have different secrets. INTERNAL: training failed.
//
// `alter` may change the links.
absl::StatusOr<IslandProgress> RunIsland(
    const RunIslandOptions& options,
    const std::function<void(IslandLinks&)>& alter = [](IslandLinks&) {});

// Refuses a run whose model is external: an island without --trainer cannot
// train it. INVALID_ARGUMENT.
absl::Status CheckModelIsKnown(const std::string& run_id,
                               const v1::RunSpec& spec);

// Options for the server connections of a process of `run` that holds `held`.
// INVALID_ARGUMENT: its share of a bandwidth cap is less than
// server::LeastCapBytesPerSecond.
absl::StatusOr<server::ParameterClientOptions> MakeParameterOptions(
    const RunIslandOptions& options, const v1::Run& run,
    const HeldLayout& held);

// RunIsland over existing links.
absl::StatusOr<IslandProgress> RunIslandOver(const RunIslandOptions& options,
                                             const IslandLinks& links);

}  // namespace atl::worker
