#include "base/time/testing/leaping_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<int64_t> reading_count{0};
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) {
    time->tv_sec += absl::ToInt64Seconds(atl::kClockLeap) * ++reading_count;
  }
  return result;
}
