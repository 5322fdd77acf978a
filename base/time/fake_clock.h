// A clock that a test moves. Thread-safe.

#ifndef BASE_TIME_FAKE_CLOCK_H_
#define BASE_TIME_FAKE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/time/clock.h"

namespace atl {

class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1000000000))
      : nanos_(absl::ToUnixNanos(start)) {}

  absl::Time Now() const override {
    return absl::FromUnixNanos(nanos_.load());
  }
  void Advance(absl::Duration duration) {
    nanos_.fetch_add(absl::ToInt64Nanoseconds(duration));
  }

 private:
  std::atomic<int64_t> nanos_;
};

}  // namespace atl

#endif  // BASE_TIME_FAKE_CLOCK_H_
