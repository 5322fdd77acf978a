// OpenDevices for kCuda: one of two, by how the program is built.
//
//   cuda_devices.cc     with --config=cuda where nvcc is
//   no_cuda_devices.cc  else: says so

#ifndef WORKER_ENGINE_DEVICE_CUDA_DEVICES_H_
#define WORKER_ENGINE_DEVICE_CUDA_DEVICES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/device/devices.h"

namespace atl::engine {

// Errors of OpenDevices. Thread-safe.
absl::StatusOr<std::unique_ptr<Devices>> OpenCudaDevices(
    const DeviceSpec& spec);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_DEVICE_CUDA_DEVICES_H_
