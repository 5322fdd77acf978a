// Causal attention of bfloat16 operands by a library (cudnn_attention.h). Our
// kernels compute the shapes that it does not support. Thread-compatible.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/runtime.h"
#include "worker/engine/ops/shapes.h"

namespace atl::engine::cuda {

class FusedAttention {
 public:
  virtual ~FusedAttention() = default;

  virtual std::string name() const = 0;

  // Bytes of device memory that Attend needs besides its arguments. A shape's
  // first call may take a second; the answer stays the same.
  //
  // Any error: the library does not support the shape; the message says why.
  virtual absl::StatusOr<int64_t> ScratchBytes(const AttentionShape& shape) = 0;

  // Queues Ops::Attention on `stream`; ScratchBytes of the shape must be OK.
  // qkv [R, (H + 2 G) D] and out [R, H D] are bfloat16, log_sum [B, H, T] is
  // f32. Same inputs give the same bits.
  //
  // UNAVAILABLE: the library or the device failed.
  virtual absl::Status Attend(cudaStream_t stream, const AttentionShape& shape,
                              const uint16_t* qkv, uint16_t* out,
                              float* log_sum, void* scratch) = 0;
};

}  // namespace atl::engine::cuda
