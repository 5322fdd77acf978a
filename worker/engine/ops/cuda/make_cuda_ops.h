// CudaOps with cuBLASLt, and with cuDNN if found. For programs that link CUDA.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::cuda {

// Devices that this process may use.
//
// UNAVAILABLE: there is no driver, or no device.
absl::StatusOr<int> DeviceCount();

// UNAVAILABLE: the device or cuBLASLt cannot start. RESOURCE_EXHAUSTED: no
// memory for cuBLASLt.
absl::StatusOr<std::unique_ptr<CudaOps>> MakeCudaOps(
    int device, ComputeType compute, const CudaOptions& options = {});

}  // namespace atl::engine::cuda
