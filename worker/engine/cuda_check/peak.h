// What a device's products reach at most, beside which a step is measured.

#ifndef WORKER_ENGINE_CUDA_CHECK_PEAK_H_
#define WORKER_ENGINE_CUDA_CHECK_PEAK_H_

#include "absl/status/statusor.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Operations a second of large square products by cuBLASLt on the stream of
// `ops`, whose operands are there in `compute`'s type: nothing is converted.
//
// RESOURCE_EXHAUSTED: no memory. UNAVAILABLE: the device failed.
absl::StatusOr<double> MeasurePeak(ComputeType compute, cuda::CudaOps& ops);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_PEAK_H_
