// Matrix products by cuBLASLt: f32 without TF32, bfloat16 natively.
//
// The algorithm of a shape is chosen once and kept. Algorithms that sum by
// atomic operations are excluded, so same inputs give the same bits. Our own
// kernel computes a shape that has no other algorithm.

#ifndef WORKER_ENGINE_OPS_CUDA_LT_MATMUL_H_
#define WORKER_ENGINE_OPS_CUDA_LT_MATMUL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/matmul.h"

namespace atl::engine::cuda {

// On `device`, which must be the calling thread's.
//
// UNAVAILABLE: cuBLASLt cannot start there. RESOURCE_EXHAUSTED: no memory for
// its workspace.
absl::StatusOr<std::unique_ptr<Matmul>> MakeLtMatmul(int device);

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_LT_MATMUL_H_
