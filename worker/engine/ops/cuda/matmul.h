// Multiplies matrices on a device.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"
#include "worker/engine/ops/cuda/runtime.h"

namespace atl::engine::cuda {

// cuBLASLt (make_cuda_ops.cc) or our kernel. Thread-compatible.
class Matmul {
 public:
  virtual ~Matmul() = default;

  // Queues a product of ops.h on `stream`. `kind` names it and its operands
  // `first` and `second`: both f32, or both bfloat16 if `is_bf16`. `out` is
  // f32, added to if `accumulate`. Sums are f32, always in one order. m, n, k
  // >= 1.
  //
  // UNAVAILABLE: the library or the device failed.
  virtual absl::Status Multiply(cudaStream_t stream, ProductKind kind,
                                int64_t m, int64_t n, int64_t k, bool is_bf16,
                                const void* first, const void* second,
                                float* out, bool accumulate) = 0;

  // Products that the library refused and our kernel computed: the first of each
  // kind, with the reason.
  virtual std::map<ProductKind, std::string> fallbacks() const { return {}; }
};

// By our own kernel: slow, for any shape.
std::unique_ptr<Matmul> MakeKernelMatmul(int device);

}  // namespace atl::engine::cuda
