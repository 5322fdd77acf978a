// Matrix products by cuBLASLt: f32 without TF32, bfloat16 natively.
//
// A shape's algorithm is chosen once. Those that sum atomically are excluded,
// so same inputs give the same bits. If none is left, our own kernel runs.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/matmul.h"

namespace atl::engine::cuda {

// `device` is the calling thread's.
//
// UNAVAILABLE: cuBLASLt cannot start. RESOURCE_EXHAUSTED: no workspace memory.
absl::StatusOr<std::unique_ptr<Matmul>> MakeLtMatmul(int device);

}  // namespace atl::engine::cuda
