// Causal attention of bfloat16 operands by a library: cuDNN where it is found
// (cudnn_attention.h). What a library does not do is left to kernels of ours.
//
// Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_FUSED_ATTENTION_H_
#define WORKER_ENGINE_OPS_CUDA_FUSED_ATTENTION_H_

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

  // The library and its version, for people.
  virtual std::string name() const = 0;

  // Bytes of the device's memory that Attend takes beside its arguments. The
  // first call of a shape may take a second; its answer stays the same.
  //
  // Any error: the library does not do this shape, and the message says why.
  virtual absl::StatusOr<int64_t> ScratchBytes(const AttentionShape& shape) = 0;

  // Ops::Attention of a shape that has ScratchBytes, queued on `stream`: qkv
  // [R, (H + 2 G) D] and out [R, H D] are bfloat16, log_sum [B, H, T] f32. The
  // same bits each time.
  //
  // UNAVAILABLE: the library or the device failed.
  virtual absl::Status Attend(cudaStream_t stream, const AttentionShape& shape,
                              const uint16_t* qkv, uint16_t* out,
                              float* log_sum, void* scratch) = 0;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_FUSED_ATTENTION_H_
