#include "worker/api/device.h"

#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace atl::worker {
namespace {

constexpr size_t kNameMax = 128;

}  // namespace

std::string CpuModelName(absl::string_view cpuinfo) {
  for (absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(field.first) != "model name") continue;
    const absl::string_view name = absl::StripAsciiWhitespace(field.second);
    if (!name.empty()) return std::string(name.substr(0, kNameMax));
  }
  return "cpu";
}

v1::Device DescribeCpu() {
  v1::Device device;
  device.set_kind("cpu");
  std::ifstream file("/proc/cpuinfo");
  device.set_name(
      CpuModelName(std::string(std::istreambuf_iterator<char>(file), {})));
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page_bytes > 0) {
    device.set_memory_bytes(int64_t{pages} * page_bytes);
  }
  return device;
}

}  // namespace atl::worker
