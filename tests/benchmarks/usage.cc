#include "tests/benchmarks/usage.h"

#include <time.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/obs/cpu_model.h"

namespace atl::benchmarks {
namespace {

// The value of a line of /proc/PID/status that is in KiB, in bytes.
int64_t ReadStatus(pid_t pid, const std::string& name) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  while (status >> word) {
    int64_t kib = 0;
    if (word == name && status >> kib) return kib << 10;
  }
  return 0;
}

}  // namespace

double CpuSeconds(const std::vector<pid_t>& pids) {
  double seconds = 0;
  for (const pid_t pid : pids) {
    clockid_t clock;
    timespec time;
    if (clock_getcpuclockid(pid, &clock) != 0) continue;
    if (clock_gettime(clock, &time) != 0) continue;
    seconds += static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
  }
  return seconds;
}

int64_t AnonymousBytes(pid_t pid) { return ReadStatus(pid, "RssAnon:"); }

int64_t ResidentBytes(pid_t pid) { return ReadStatus(pid, "VmRSS:"); }

int64_t LoopbackBytes() {
  std::ifstream file("/sys/class/net/lo/statistics/rx_bytes");
  int64_t bytes = 0;
  file >> bytes;
  return bytes;
}

PageCache PageCacheBytes() {
  std::ifstream file("/proc/meminfo");
  PageCache cache;
  std::string word;
  while (file >> word) {
    int64_t kib = 0;
    if (word == "Cached:" && file >> kib) cache.cached += kib << 10;
    if (word == "Shmem:" && file >> kib) cache.cached -= kib << 10;
    if (word == "Dirty:" && file >> kib) cache.dirty += kib << 10;
    if (word == "Writeback:" && file >> kib) cache.dirty += kib << 10;
  }
  return cache;
}

std::string CpuName() {
  return absl::StrCat(ThisCpuModelName("unknown"), ", ",
                      std::thread::hardware_concurrency(), " cores");
}

MemoryWatch::MemoryWatch(pid_t pid)
    : thread_([this, pid](std::stop_token stop) {
        while (!stop.stop_requested()) {
          peak_bytes_ = std::max(peak_bytes_.load(), AnonymousBytes(pid));
          absl::SleepFor(absl::Milliseconds(10));
        }
      }) {}

MemoryWatch::~MemoryWatch() {
  thread_.request_stop();
  thread_.join();
}

}  // namespace atl::benchmarks
