// Checks NCCL's collectives between processes that share one device.

#ifndef WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_

#include "worker/engine/cuda_check/ranks.h"
#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// One rank's part: the result of every kind of call, groups, started calls, the
// speed of an all-reduce, and the error when ranks make different calls.
void CheckNccl(const NcclRank& rank, Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_
