// Checks that the libraries do the work that they were loaded for: a fallback
// gives right results, but slowly and without a message.

#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "worker/engine/cuda_check/report.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Checks that cuDNN loads, and says its version.
void CheckCudnn(Report& report);

// Checks each product, and in bf16 attention, in a step of one layer of each
// shape of SpeedShapes (speed.h), with its whole batch. A check fails if our
// kernel computed it. `make_ops` returns new operations, or null after a
// report.
void CheckFallbacks(
    ComputeType compute,
    absl::FunctionRef<std::unique_ptr<cuda::CudaOps>()> make_ops,
    Report& report);

}  // namespace atl::engine::check
