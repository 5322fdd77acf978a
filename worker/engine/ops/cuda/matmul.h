// The interface of a library that multiplies matrices on a device.

#ifndef WORKER_ENGINE_OPS_CUDA_MATMUL_H_
#define WORKER_ENGINE_OPS_CUDA_MATMUL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"
#include "worker/engine/ops/cuda/runtime.h"

namespace atl::engine::cuda {

// Implementations: cuBLASLt (lt_matmul.h) and our own kernel (kernel_matmul.h).
// Thread-compatible.
class Matmul {
 public:
  virtual ~Matmul() = default;

  // Queues a product of ops.h on `stream`. `kind` names the product and its
  // operands `first` and `second`, which are both f32, or both bfloat16 if
  // `is_bf16`. `out` is f32; `accumulate` adds to it. Sums are in f32 and have
  // the same bits each time. m, n, k >= 1.
  //
  // UNAVAILABLE: the library or the device failed.
  virtual absl::Status Multiply(cudaStream_t stream, ProductKind kind,
                                int64_t m, int64_t n, int64_t k, bool is_bf16,
                                const void* first, const void* second,
                                float* out, bool accumulate) = 0;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_MATMUL_H_
