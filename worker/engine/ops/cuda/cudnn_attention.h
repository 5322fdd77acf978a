// Attention by cuDNN kernels that never write the scores.
//
// Lengths must be a multiple of 64, as in training: a plan costs a fraction of
// a second, and generation has each length once. Plans are kept and limited in
// number; further shapes are refused.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/fused_attention.h"

namespace atl::engine::cuda {

// On the calling thread's device.
//
// UNAVAILABLE: this was built without cuDNN, or cuDNN cannot use the device.
// Errors of OpenCudnn. Everything else works without it.
absl::StatusOr<std::unique_ptr<FusedAttention>> MakeCudnnAttention();

}  // namespace atl::engine::cuda
