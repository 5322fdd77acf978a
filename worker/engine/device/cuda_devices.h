// OpenDevices for kCuda. The build links one of:
//
//   cuda_devices.cc     with --config=cuda where nvcc is found
//   no_cuda_devices.cc  otherwise; returns an error

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/device/devices.h"

namespace atl::engine {

// Errors: those of OpenDevices. Thread-safe.
absl::StatusOr<std::unique_ptr<Devices>> OpenCudaDevices(
    const DeviceSpec& spec);

}  // namespace atl::engine
