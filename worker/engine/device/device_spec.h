// Which device an island's ranks compute on, as the command line says it.
//
// Pure.

#ifndef WORKER_ENGINE_DEVICE_DEVICE_SPEC_H_
#define WORKER_ENGINE_DEVICE_DEVICE_SPEC_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::engine {

enum class DeviceKind { kCpu, kCuda };

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  // Of all ranks of the process; else each has one by its number.
  std::optional<int> index;
  // Of kCuda: steps are recorded as CUDA graphs and replayed.
  bool graphs = true;
  // Of kCuda: attention is cuDNN's where it does the shape.
  bool cudnn = true;
};

// "cpu", "cuda" or "cuda:N", the latter two also with ",graphs=off" and behind
// it ",cudnn=off"; "" is "cpu".
//
// INVALID_ARGUMENT: another text. One sentence.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(absl::string_view text);

// The reverse.
std::string ToString(const DeviceSpec& spec);

// The device of rank `rank` of the island, of `device_count` >= 1 here: the one
// that is given, else those of the machine in turn, so that neighbouring ranks
// have neighbouring devices whether they share a process or not.
//
// INVALID_ARGUMENT: there is no such device.
absl::StatusOr<int> DeviceOfRank(const DeviceSpec& spec, int rank,
                                 int device_count);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_DEVICE_DEVICE_SPEC_H_
