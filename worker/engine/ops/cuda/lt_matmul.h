// Matrix products by cuBLASLt: f32 without TF32, bfloat16 natively.
//
// An algorithm is asked for once a shape and kept. Only those are taken that
// give the same bits each time (no sums by atomic operations). A shape without
// one falls to the kernel of ours.

#ifndef WORKER_ENGINE_OPS_CUDA_LT_MATMUL_H_
#define WORKER_ENGINE_OPS_CUDA_LT_MATMUL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/matmul.h"

namespace atl::engine::cuda {

// On `device`, the calling thread's.
//
// UNAVAILABLE: cuBLASLt cannot be made there. RESOURCE_EXHAUSTED: no memory for
// its workspace.
absl::StatusOr<std::unique_ptr<Matmul>> MakeLtMatmul(int device);

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_LT_MATMUL_H_
