#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "worker/engine/device/cpu_devices.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/ops/cuda/cublas_lt.h"
#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/make_cuda_ops.h"
#ifdef ATL_NCCL
#include "worker/collective/nccl/nccl_library.h"
#include "worker/collective/nccl/nccl_world.h"
#endif

namespace atl::engine {
namespace {

class Cuda final : public Devices {
 public:
  Cuda(const DeviceSpec& spec, int count) : spec_(spec), count_(count) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }

  absl::StatusOr<DeviceDescription> Describe(int rank) const override {
    ASSIGN_OR_RETURN(const int device, DeviceOfRank(spec_, rank, count_));
    cudaDeviceProp properties = {};
    RETURN_IF_ERROR(cuda::ToStatus(cudaGetDeviceProperties(&properties, device),
                                   "reading its properties", device));
    return DeviceDescription{
        .name = properties.name,
        .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
  }

  absl::Status CheckRanks(int first, int count) const override {
    if (count == 1) return absl::OkStatus();
    const int devices = spec_.index.has_value() ? 1 : count_;
    if (count <= devices) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        count, " ranks of this process would share ", devices,
        " CUDA device(s), but NCCL allows a process only one rank on each "
        "device: run each rank in its own process (with its own NCCL_HOSTID "
        "where ranks share a device), or make the mesh smaller"));
  }

  absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int rank, ComputeType compute,
                                               int) override {
    ASSIGN_OR_RETURN(const int device, DeviceOfRank(spec_, rank, count_));
    return cuda::MakeCudaOps(
        device, compute,
        {.graphs = spec_.graphs, .fused_attention = spec_.cudnn});
  }

  absl::StatusOr<std::unique_ptr<collective::Collective>> JoinWorld(
      collective::Collective& control, Ops& ops) override {
#ifdef ATL_NCCL
    auto* const of_device = dynamic_cast<cuda::CudaOps*>(&ops);
    CHECK(of_device != nullptr);  // MakeOps made it.
    RETURN_IF_ERROR(collective::CheckNccl());
    return collective::JoinNccl(control,
                                {.device = of_device->device(),
                                 .compute_stream = of_device->stream()});
#else
    return absl::FailedPreconditionError(
        "this program was built without NCCL, which ranks on CUDA devices "
        "need: build it on a machine with nccl.h and libnccl.so, or train with "
        "one rank");
#endif
  }

 private:
  const DeviceSpec spec_;
  const int count_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const DeviceSpec& spec) {
  if (spec.kind == DeviceKind::kCpu) return MakeCpuDevices();
  const absl::StatusOr<int> count = cuda::DeviceCount();
  if (!count.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(count.status().message(),
                     "; this machine needs an NVIDIA GPU and a driver that "
                     "supports this program's CUDA version (nvidia-smi shows "
                     "both)"));
  }
  RETURN_IF_ERROR(cuda::CheckCublasLt());
  RETURN_IF_ERROR(DeviceOfRank(spec, /*rank=*/0, *count).status());
  return std::make_unique<Cuda>(spec, *count);
}

}  // namespace atl::engine
