#include "worker/api/device.h"

#include <unistd.h>

#include <cstdint>

#include "base/obs/cpu_model.h"

namespace atl::worker {

v1::Device DescribeCpu() {
  v1::Device device;
  device.set_kind("cpu");
  device.set_name(ThisCpuModelName("cpu"));
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page_bytes > 0) {
    device.set_memory_bytes(int64_t{pages} * page_bytes);
  }
  return device;
}

}  // namespace atl::worker
