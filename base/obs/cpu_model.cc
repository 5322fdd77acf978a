#include "base/obs/cpu_model.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace atl {
namespace {

constexpr size_t kNameMax = 128;

}  // namespace

std::string CpuModelName(absl::string_view cpuinfo,
                         absl::string_view otherwise) {
  for (absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(field.first) != "model name") continue;
    const absl::string_view name = absl::StripAsciiWhitespace(field.second);
    if (!name.empty()) return std::string(name.substr(0, kNameMax));
  }
  return std::string(otherwise);
}

std::string ThisCpuModelName(absl::string_view otherwise) {
  std::ifstream file("/proc/cpuinfo");
  return CpuModelName(std::string(std::istreambuf_iterator<char>(file), {}),
                      otherwise);
}

}  // namespace atl
