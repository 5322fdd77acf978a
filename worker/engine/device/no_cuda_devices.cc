#include "absl/status/status.h"
#include "worker/engine/device/cuda_devices.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<Devices>> OpenCudaDevices(const DeviceSpec&) {
  return absl::FailedPreconditionError(
      "this program was built without CUDA: build it on a machine with nvcc, "
      "cuBLASLt and NCCL: bazel build --config=cuda //cli:atoll");
}

}  // namespace atl::engine
