// A world whose ranks are devices that NCCL connects, one a process.
//
// It stands on a world of CPU ranks, the control, over which the ranks find
// each other and which carries the news of its end: tcp/ for processes. Calls
// are queued on a stream of each group's own, behind what the stream of
// computation has queued when they are made; Wait makes the stream of
// computation wait for the call, and the host for nothing. A barrier that is
// Run is the exception: the host waits for it.
//
// Differences to other worlds (collective.h has what holds for all):
//
//   Bits     NCCL's: for one version, topology and size they are the same.
//   Errors   come with a later call, once the device or NCCL has told of them.
//   A rank that leaves while others need it, or makes another call than they,
//            ends the world by DEADLINE_EXCEEDED after call_timeout, which
//            names the call; with `check_calls` at once, and by name.

#ifndef WORKER_COLLECTIVE_NCCL_NCCL_WORLD_H_
#define WORKER_COLLECTIVE_NCCL_NCCL_WORLD_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/collective.h"

namespace atl::collective {

struct NcclOptions {
  int device = 0;
  cudaStream_t compute_stream = nullptr;  // Lives longer than the world.
  absl::Duration call_timeout = absl::Minutes(10);
  // Ranks compare their calls over the control before each: for tests and for
  // looking for a fault, at a round trip a call.
  bool check_calls = false;
};

// This rank's world, "world", over the ranks of `control`, which all make it.
// `control` is used by it alone, and outlives it.
//
// UNAVAILABLE: NCCL or the device failed, or a rank ended. DEADLINE_EXCEEDED: a
// rank did not come within call_timeout.
absl::StatusOr<std::unique_ptr<Collective>> JoinNccl(
    Collective& control, const NcclOptions& options);

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_NCCL_NCCL_WORLD_H_
