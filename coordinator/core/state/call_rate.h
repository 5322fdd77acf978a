// How often one caller may call: a bucket of calls that fills at a rate.
//
// Pure: callers pass the time. Thread-compatible.

#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace atl::coordinator {

class CallRate {
 public:
  // One call in each `period` (> 0), and after idle time `burst` (>= 1) calls
  // at once.
  CallRate(absl::Duration period, int burst)
      : period_(period), credit_max_(period * burst) {}

  // Counts a call at `now` and returns zero. If the call is one too many,
  // counts nothing and returns how long the caller must wait.
  absl::Duration Take(absl::Time now) {
    const absl::Time full = std::max(full_, now) + period_;
    const absl::Duration wait = full - now - credit_max_;
    if (wait > absl::ZeroDuration()) return wait;
    full_ = full;
    return absl::ZeroDuration();
  }

 private:
  absl::Duration period_;
  absl::Duration credit_max_;
  // When the caller has its whole burst again.
  absl::Time full_ = absl::InfinitePast();
};

}  // namespace atl::coordinator
