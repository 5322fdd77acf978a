// NCCL's collectives between processes that share one device.

#ifndef WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_

#include "worker/engine/cuda_check/ranks.h"
#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// All that one rank does: every kind of call against what it must give, groups,
// started calls, the speed of an all-reduce, and what ranks that differ get.
void CheckNccl(const NcclRank& rank, Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_
