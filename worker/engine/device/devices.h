// What the ranks of a process compute on and how they talk: the one place where
// a device is chosen.
//
//   cpu    CpuOps, in the host's memory, over the world that they met in
//   cuda   CudaOps with cuBLASLt, in a device's memory, over NCCL, which stands
//          on the world that they met in
//
// Thread-safe.

#ifndef WORKER_ENGINE_DEVICE_DEVICES_H_
#define WORKER_ENGINE_DEVICE_DEVICES_H_

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

// For people, and for what an island says of itself.
struct DeviceDescription {
  std::string name;
  int64_t memory_bytes = 0;
};

class Devices {
 public:
  virtual ~Devices() = default;

  virtual DeviceKind kind() const = 0;

  // Of the device of rank `rank`. Not of kCpu.
  virtual absl::StatusOr<DeviceDescription> Describe(int rank) const = 0;

  // What keeps the `count` ranks from `first` from computing together, all in
  // this process, in a sentence.
  //
  // FAILED_PRECONDITION: two of them have one device, which collectives refuse.
  virtual absl::Status CheckRanks(int first, int count) const = 0;

  // The operations of rank `rank` of the island. `thread_count` is a CPU's.
  //
  // UNAVAILABLE: the device failed. RESOURCE_EXHAUSTED: no memory.
  virtual absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int rank,
                                                       ComputeType compute,
                                                       int thread_count) = 0;

  // The world whose calls are made on memory of `ops`, which MakeOps made for
  // the same rank, over the ranks of `control`, who all call it. Null: that is
  // `control` itself; else it alone uses `control` from now on. Both outlive
  // it.
  //
  // FAILED_PRECONDITION: this program was built without NCCL. Errors of
  // collective::JoinNccl.
  virtual absl::StatusOr<std::unique_ptr<collective::Collective>> JoinWorld(
      collective::Collective& control, Ops& ops) = 0;
};

// The devices of this machine that `spec` names.
//
// FAILED_PRECONDITION: this program was built without CUDA, or the machine has
// no device that it can use; the message says what is missing and what to do.
// INVALID_ARGUMENT: there is no device of that number.
absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const DeviceSpec& spec);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_DEVICE_DEVICES_H_
