// How fast a device's attention is, by itself.

#ifndef WORKER_ENGINE_CUDA_CHECK_ATTENTION_SPEED_H_
#define WORKER_ENGINE_CUDA_CHECK_ATTENTION_SPEED_H_

#include "absl/status/status.h"
#include "worker/engine/cuda_check/report.h"
#include "worker/engine/cuda_check/speed.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Of a layer of `shape`, its whole batch: medians of some forward and backward
// passes. The report says what made the forward pass, a library or kernels of
// ours, and in the latter case why.
//
// RESOURCE_EXHAUSTED: no memory. UNAVAILABLE: the device failed.
absl::Status MeasureAttention(const SpeedShape& shape, cuda::CudaOps& ops,
                              Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_ATTENTION_SPEED_H_
