// Schedules bytes to keep to a rate. Pure: callers pass the time.
// Thread-compatible.
//
// Takes are served in order, each after the previous ones, so takers share the
// rate in proportion to the bytes they request. In any span of length T at most
//
//   rate * (T + credit_max) + the largest single take
//
// bytes move, because a take moves as a whole when its first byte is due.

#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace atl {

class TokenBucket {
 public:
  // `bytes_per_second` > 0. Idle time up to `credit_max` (>= 0) is credited, to
  // compensate for timers that fire late.
  TokenBucket(double bytes_per_second, absl::Duration credit_max)
      : bytes_per_second_(bytes_per_second), credit_max_(credit_max) {}

  // Takes `bytes` (>= 0). Returns when they may move: `now` or later. `now` may
  // be earlier than at the last call.
  absl::Time Take(int64_t bytes, absl::Time now);

  // Returns `bytes` that were taken but will not move.
  void GiveBack(int64_t bytes) { due_ -= ToSpan(bytes); }

 private:
  absl::Duration ToSpan(int64_t bytes) const {
    return absl::Seconds(static_cast<double>(bytes) / bytes_per_second_);
  }

  double bytes_per_second_;
  absl::Duration credit_max_;
  absl::Time due_ = absl::InfinitePast();  // When the next byte is due.
};

}  // namespace atl
