// Attention by those of cuDNN's kernels that never write the scores.
//
// Only lengths that are a multiple of 64, as in training. cuDNN needs a
// fraction of a second to plan a shape, and generation uses every length once.
// Plans are kept, and their number is limited: further shapes are refused.

#ifndef WORKER_ENGINE_OPS_CUDA_CUDNN_ATTENTION_H_
#define WORKER_ENGINE_OPS_CUDA_CUDNN_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/fused_attention.h"

namespace atl::engine::cuda {

// On the calling thread's device.
//
// UNAVAILABLE: cuDNN is missing on this machine or was missing at build time,
// or it cannot use the device. Everything else works without it.
absl::StatusOr<std::unique_ptr<FusedAttention>> MakeCudnnAttention();

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_CUDNN_ATTENTION_H_
