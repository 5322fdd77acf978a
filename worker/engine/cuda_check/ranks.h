// Runs this program again as the ranks of an NCCL world, a process each.

#ifndef WORKER_ENGINE_CUDA_CHECK_RANKS_H_
#define WORKER_ENGINE_CUDA_CHECK_RANKS_H_

#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// `size` processes on `device`, each with an NCCL_HOSTID of its own: NCCL then
// takes them for hosts that share nothing, and lets them use one device. What
// they print is relayed to `report`; a rank that does not end well is a failed
// check.
void RunNcclRanks(int size, int device, Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_RANKS_H_
