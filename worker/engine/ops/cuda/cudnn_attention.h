// Attention by cuDNN's kernels that never write the scores.
//
// Of shapes whose length is a multiple of 64, as those of training are: a plan
// of a shape takes cuDNN a fraction of a second and stays, and generation has
// every length once. Plans are bounded in number; further shapes are refused.

#ifndef WORKER_ENGINE_OPS_CUDA_CUDNN_ATTENTION_H_
#define WORKER_ENGINE_OPS_CUDA_CUDNN_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/fused_attention.h"

namespace atl::engine::cuda {

// On the calling thread's device.
//
// UNAVAILABLE: there is no cuDNN, here or when this was built, or it cannot use
// the device. All else works without.
absl::StatusOr<std::unique_ptr<FusedAttention>> MakeCudnnAttention();

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_CUDNN_ATTENTION_H_
