#include "worker/engine/device/device_spec.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace atl::engine {

absl::StatusOr<DeviceSpec> ParseDeviceSpec(absl::string_view text) {
  if (text.empty() || text == "cpu") return DeviceSpec{};
  DeviceSpec spec{.kind = DeviceKind::kCuda};
  absl::string_view name = text;
  // In any order, each once.
  for (bool found = true; found;) {
    found = false;
    if (spec.cudnn && absl::ConsumeSuffix(&name, ",cudnn=off")) {
      spec.cudnn = false;
      found = true;
    }
    if (spec.graphs && absl::ConsumeSuffix(&name, ",graphs=off")) {
      spec.graphs = false;
      found = true;
    }
  }
  if (name == "cuda") return spec;
  int index = 0;
  // Digits only: SimpleAtoi also accepts a sign and blanks.
  if (absl::ConsumePrefix(&name, "cuda:") &&
      name.find_first_not_of("0123456789") == absl::string_view::npos &&
      absl::SimpleAtoi(name, &index)) {
    spec.index = index;
    return spec;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text,
      "\" is not a device: use cpu, cuda or cuda:N; \",graphs=off\" and "
      "\",cudnn=off\" may follow cuda and cuda:N"));
}

absl::StatusOr<int> DeviceOfRank(const DeviceSpec& spec, int rank,
                                 int device_count) {
  if (!spec.index.has_value()) return rank % device_count;
  if (*spec.index < device_count) return *spec.index;
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no CUDA device ", *spec.index, ": this machine has ",
      device_count, ", and the last is ", device_count - 1));
}

}  // namespace atl::engine
