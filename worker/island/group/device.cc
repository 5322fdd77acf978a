#include "worker/island/group/device.h"

#include <utility>

#include "base/machine/limits.h"
#include "base/obs/cpu_model.h"
#include "base/status/status_macros.h"
#include "worker/engine/device/device_spec.h"

namespace atl::worker {

v1::Device DescribeCpu() {
  v1::Device device;
  device.set_kind("cpu");
  device.set_name(ThisCpuModelName("cpu"));
  device.set_memory_bytes(MemoryLimitBytes());
  return device;
}

v1::Device DescribeDevice(const engine::Devices& devices, int rank) {
  if (devices.kind() == engine::DeviceKind::kCpu) return DescribeCpu();
  v1::Device device;
  device.set_kind("cuda");
  const auto description = devices.Describe(rank);
  if (description.ok()) {
    device.set_name(description->name);
    device.set_memory_bytes(description->memory_bytes);
  }
  return device;
}

absl::Status CheckDevice(absl::string_view device) {
  ASSIGN_OR_RETURN(const engine::DeviceSpec spec,
                   engine::ParseDeviceSpec(device));
  return engine::OpenDevices(spec).status();
}

absl::StatusOr<std::unique_ptr<engine::Trainer>> MakeTrainerOn(
    engine::Devices& devices, const engine::TrainerOptions& options) {
  if (devices.kind() == engine::DeviceKind::kCpu) {
    return engine::Trainer::Create(options);
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<engine::Ops> ops,
      devices.MakeOps(/*rank=*/0, options.compute, options.thread_count));
  return engine::Trainer::CreateOn(options, std::move(ops));
}

}  // namespace atl::worker
