// The operations on this machine's CPU: oneDNN for matrix products, vector
// kernels for the rest, on a thread pool of its own.
//
// Work is cut by shape alone and sums run over fixed tiles in a fixed order, so
// that results have the same bits for any thread count (on one type of CPU).
// oneDNN is called with one thread: the calling threads' OpenMP thread count is
// set to 1. Scratch grows in the first calls of a shape and is then kept.

#ifndef WORKER_ENGINE_OPS_CPU_CPU_OPS_H_
#define WORKER_ENGINE_OPS_CPU_CPU_OPS_H_

#include <memory>

#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/products.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// The fastest on this CPU. `thread_count` >= 1.
std::unique_ptr<Ops> MakeCpuOps(int thread_count,
                                ComputeType compute = ComputeType::kF32);

// With given parts, which must be able to run on this CPU.
std::unique_ptr<Ops> MakeCpuOps(int thread_count, const Kernels& kernels,
                                ProductKind kind = ProductKind::kF32);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_OPS_CPU_CPU_OPS_H_
