// NCCL's collectives between processes that share one device.

#ifndef WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_

#include <cstdint>
#include <string>

#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// Which rank of which world a process is.
struct NcclRank {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // "127.0.0.1:PORT", where rank 0 listens.
  int device = 0;
};

// All that one rank does: every kind of call against what it must give, groups,
// started calls, the speed of an all-reduce, and what ranks that differ get.
void CheckNccl(const NcclRank& rank, Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_NCCL_CHECK_H_
