// Takes part in a run: an island, from its join to the end of the run.
//
// RunIsland blocks on the caller's thread, which computes; two more threads
// speak to the coordinator. Nothing is printed: progress goes to a callback,
// what an operator may want to know to the log.

#ifndef WORKER_API_RUN_ISLAND_H_
#define WORKER_API_RUN_ISLAND_H_

#include <functional>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/held_layout.h"
#include "server/client/parameter_client.h"
#include "worker/island/options.h"

namespace atl::worker {

// Runs an island until its run ends or it is stopped; returns its last state.
//
// INVALID_ARGUMENT, NOT_FOUND: an id, the data or the run is wrong; the message
// says what to do. FAILED_PRECONDITION: the run has ended, the data is not the
// run's, or there is no device as place.device. ABORTED: another process joined
// as this island. CANCELLED: the run was cancelled, or the island stopped at
// once. UNAVAILABLE: the coordinator was away for too long, or, with the reason
// ISLAND_PROCESS_LOST, the processes of the island did not stay together.
// PERMISSION_DENIED: they have different secrets.
// INTERNAL: training failed.
absl::StatusOr<IslandProgress> RunIsland(const RunIslandOptions& options);

// How a process that holds `held` speaks to the servers of a run of `spec`.
//
// INVALID_ARGUMENT: its part of a cap is less than
// server::LeastCapBytesPerSecond.
absl::StatusOr<server::ParameterClientOptions> MakeParameterOptions(
    const RunIslandOptions& options, const v1::RunSpec& spec,
    const HeldLayout& held);

// RunIsland, with what `alter` has made of its links before anything is called.
absl::StatusOr<IslandProgress> RunIslandAltered(
    const RunIslandOptions& options,
    const std::function<void(IslandLinks&)>& alter);

// RunIsland over `links`.
absl::StatusOr<IslandProgress> RunIslandOver(const RunIslandOptions& options,
                                             const IslandLinks& links);

}  // namespace atl::worker

#endif  // WORKER_API_RUN_ISLAND_H_
