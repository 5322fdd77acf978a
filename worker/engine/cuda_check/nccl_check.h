// Checks NCCL's collectives between processes that share one device.

#pragma once

#include "worker/engine/cuda_check/ranks.h"
#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// One rank's part: the result of every kind of call, groups, started calls, the
// speed of an all-reduce, and the error when ranks make different calls.
void CheckNccl(const NcclRank& rank, Report& report);

}  // namespace atl::engine::check
