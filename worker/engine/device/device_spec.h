// The device of an island's ranks, as the command line names it. Pure.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::engine {

enum class DeviceKind { kCpu, kCuda };

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  // For all ranks of the process. Unset: each rank's number decides.
  std::optional<int> index;
  // kCuda: record steps as CUDA graphs and replay them.
  bool graphs = true;
  // kCuda: use cuDNN's attention for the shapes that it supports.
  bool cudnn = true;

  bool operator==(const DeviceSpec&) const = default;
};

// "cpu", "cuda" or "cuda:N"; "" is "cpu". ",graphs=off" and ",cudnn=off" may
// follow the last two, in any order.
//
// INVALID_ARGUMENT: any other text. The message is one sentence.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(absl::string_view text);

// The device of the island's rank `rank` on a machine with `device_count` >= 1:
// spec.index if set, else rank mod device_count. So neighbouring ranks have
// neighbouring devices, whether they share a process or not.
//
// INVALID_ARGUMENT: there is no such device.
absl::StatusOr<int> DeviceOfRank(const DeviceSpec& spec, int rank,
                                 int device_count);

}  // namespace atl::engine
