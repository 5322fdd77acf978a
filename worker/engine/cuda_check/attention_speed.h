// The speed of attention alone on a device.

#pragma once

#include "absl/status/status.h"
#include "worker/engine/cuda_check/report.h"
#include "worker/engine/cuda_check/speed.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Measures one layer of `shape` with its whole batch: medians of several
// forward and backward passes. Reports whether a library or our kernel computed
// the forward pass, and why our kernel did.
//
// RESOURCE_EXHAUSTED: no memory. UNAVAILABLE: the device failed.
absl::Status MeasureAttention(const SpeedShape& shape, cuda::CudaOps& ops,
                              Report& report);

}  // namespace atl::engine::check
