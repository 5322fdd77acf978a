// The operations on the CPU: oneDNN for matrix products, vector kernels for the
// rest, on its own thread pool.
//
// Shapes alone decide how work is cut, and sums run over fixed tiles in a fixed
// order. So on one type of CPU any thread count gives the same bits. oneDNN
// gets one thread: the calling threads' OpenMP thread count becomes 1. Scratch
// grows in the first calls of a shape and is kept.

#pragma once

#include <memory>

#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/products.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// The fastest for this CPU. `thread_count` >= 1.
std::unique_ptr<Ops> MakeCpuOps(int thread_count,
                                ComputeType compute = ComputeType::kF32);

// With given kernels and products, which this CPU must support.
std::unique_ptr<Ops> MakeCpuOps(int thread_count, const Kernels& kernels,
                                ProductKind kind = ProductKind::kF32);

}  // namespace atl::engine
