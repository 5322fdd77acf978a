// NCCL alone on a shared device, with none of our collectives: what fails here
// is not a fault of ours.

#pragma once

#include "worker/engine/cuda_check/ranks.h"
#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// One rank's part: an all-reduce whose numbers are compared. With `kill` the
// last rank then kills itself, and the others abort an all-reduce that waits
// for it. Waits without a bound: the parent kills the process at its limit.
void ControlNccl(const NcclRank& at, bool kill, Report& report);

}  // namespace atl::engine::check
