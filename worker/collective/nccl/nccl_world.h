// A world whose ranks are devices that NCCL connects, one a process.
//
// It uses a world of CPU ranks, the control (tcp/ for processes), in which the
// ranks find each other and which spreads the first error. Each group queues
// its calls on its own stream, after the work that is in the compute stream at
// that time. Wait makes the compute stream wait for the call; the host does not
// wait. Exception: the host waits for a barrier that is Run.
//
// Differences to other worlds (collective.h):
//
//   Bits     NCCL's: constant for one version, topology and size.
//   Errors   come with a later call, once the device or NCCL reports them.
//   A rank that leaves early or makes another call ends the world by
//            DEADLINE_EXCEEDED after call_timeout; the message names the call.
//            With `check_calls` the error comes at once and names the rank.

#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/collective.h"

namespace atl::collective {

struct NcclOptions {
  int device = 0;
  cudaStream_t compute_stream = nullptr;  // Outlives the world.
  absl::Duration call_timeout = absl::Minutes(10);
  // For tests and debugging: ranks compare their calls over the control first,
  // which costs a round trip a call.
  bool check_calls = false;
};

// This rank's "world" over the ranks of `control`; all of them must call it.
// Nothing else may use `control`, which must outlive the result.
//
// UNAVAILABLE: NCCL or the device failed, or a rank ended. DEADLINE_EXCEEDED: a
// rank did not come within call_timeout.
absl::StatusOr<std::unique_ptr<Collective>> JoinNccl(
    Collective& control, const NcclOptions& options);

}  // namespace atl::collective
