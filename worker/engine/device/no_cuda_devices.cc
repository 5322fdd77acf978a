#include "absl/status/status.h"
#include "worker/engine/device/cpu_devices.h"
#include "worker/engine/device/devices.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const DeviceSpec& spec) {
  if (spec.kind == DeviceKind::kCpu) return MakeCpuDevices();
  return absl::FailedPreconditionError(
      "this program was built without CUDA: build it on a machine with nvcc, "
      "cuBLASLt and NCCL: bazel build --config=cuda //cli:atoll");
}

}  // namespace atl::engine
