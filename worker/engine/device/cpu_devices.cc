#include "worker/engine/device/cpu_devices.h"

#include "absl/status/status.h"
#include "worker/engine/ops/cpu/cpu_ops.h"

namespace atl::engine {
namespace {

class Cpu final : public Devices {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  absl::StatusOr<DeviceDescription> Describe(int) const override {
    return absl::UnimplementedError("Describe does not support cpu devices");
  }
  absl::Status CheckRanks(int, int) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int, ComputeType compute,
                                               int thread_count) override {
    return MakeCpuOps(thread_count, compute);
  }
  absl::StatusOr<std::unique_ptr<collective::Collective>> JoinWorld(
      collective::Collective&, Ops&) override {
    return std::unique_ptr<collective::Collective>();
  }
};

}  // namespace

std::unique_ptr<Devices> MakeCpuDevices() { return std::make_unique<Cpu>(); }

Devices& CpuDevices() {
  static Devices& cpu = *MakeCpuDevices().release();
  return cpu;
}

}  // namespace atl::engine
