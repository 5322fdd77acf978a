#include "worker/engine/device/devices.h"

#include "worker/engine/device/cpu_devices.h"
#include "worker/engine/device/cuda_devices.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const DeviceSpec& spec) {
  if (spec.kind == DeviceKind::kCuda) return OpenCudaDevices(spec);
  return MakeCpuDevices();
}

}  // namespace atl::engine
