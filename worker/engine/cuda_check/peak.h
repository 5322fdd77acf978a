// The peak speed of a device's products, for comparison with a step.

#pragma once

#include "absl/status/statusor.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Operations per second of large square cuBLASLt products on the stream of
// `ops`. The operands already have `compute`'s type: nothing is converted.
//
// RESOURCE_EXHAUSTED: no memory. UNAVAILABLE: the device failed.
absl::StatusOr<double> MeasurePeak(ComputeType compute, cuda::CudaOps& ops);

}  // namespace atl::engine::check
