// The devices on which a process's ranks compute, and how the ranks
// communicate. Only this folder chooses a device. Thread-safe.
//
//   cpu    CpuOps in host memory; ranks use the world that they joined
//   cuda   CudaOps with cuBLASLt in device memory; NCCL on top of that world

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/engine/device/device_spec.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// For people, and for an island's description of itself.
struct DeviceDescription {
  std::string name;
  int64_t memory_bytes = 0;
};

class Devices {
 public:
  virtual ~Devices() = default;

  virtual DeviceKind kind() const = 0;

  // Describes rank `rank`'s device. Not for kCpu.
  virtual absl::StatusOr<DeviceDescription> Describe(int rank) const = 0;

  // Whether `count` ranks from `first` on, all in this process, can compute
  // together. The message is one sentence.
  //
  // FAILED_PRECONDITION: two have one device, which NCCL refuses.
  virtual absl::Status CheckRanks(int first, int count) const = 0;

  // The operations of the island's rank `rank`. `thread_count` applies to CPUs.
  //
  // UNAVAILABLE: the device failed. RESOURCE_EXHAUSTED: no memory.
  virtual absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int rank,
                                                       ComputeType compute,
                                                       int thread_count) = 0;

  // The world for calls on memory of `ops`, which MakeOps made for the same
  // rank. All ranks of `control` must call this. Null means: use `control`
  // itself. Otherwise only the result may use `control`. Both must outlive it.
  //
  // FAILED_PRECONDITION: the program was built without NCCL, or NCCL is missing
  // on this machine. Errors of JoinNccl.
  virtual absl::StatusOr<std::unique_ptr<collective::Collective>> JoinWorld(
      collective::Collective& control, Ops& ops) = 0;
};

// The devices of this machine that `spec` names. The build links one of:
//
//   cuda_devices.cc     with --config=cuda where nvcc is found
//   no_cuda_devices.cc  otherwise; returns an error for kCuda
//
// FAILED_PRECONDITION: the program was built without CUDA, or the machine has
// no usable device or no cuBLASLt; the message says what to do.
// INVALID_ARGUMENT: no device has that number.
absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const DeviceSpec& spec);

}  // namespace atl::engine
