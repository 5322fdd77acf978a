#include "base/machine/limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/machine/cgroup.h"

namespace atl {
namespace {

// Linux has at most 8192 processors.
constexpr int kSetCount = 8192 / CPU_SETSIZE;

int CountAffinity() {
  cpu_set_t sets[kSetCount];
  if (sched_getaffinity(0, sizeof(sets), sets) == 0) {
    return CPU_COUNT_S(sizeof(sets), sets);
  }
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

int64_t MemoryLimitBytes() {
  const int64_t host = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(host, ReadCgroupLimits("").memory_bytes.value_or(host));
}

int ProcessorCount() {
  const double host = std::max(1, CountAffinity());
  const double quota = ReadCgroupLimits("").processors.value_or(host);
  return static_cast<int>(std::min(host, std::max(1.0, std::ceil(quota))));
}

}  // namespace atl
