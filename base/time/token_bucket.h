// Says when bytes may move so that they keep to a rate.
//
// Pure: the time is handed in. Thread-compatible.
//
// Whoever takes first moves first, and each waits for those before it, so that
// takers share the rate by the bytes that they ask for. In any span of length T
// no more moves than
//
//   rate * (T + credit_max) + the largest single take
//
// for a take moves as a whole when its first byte is due.

#ifndef BASE_TIME_TOKEN_BUCKET_H_
#define BASE_TIME_TOKEN_BUCKET_H_

#include <cstdint>

#include "absl/time/time.h"

namespace atl {

class TokenBucket {
 public:
  // `bytes_per_second` > 0. Time in which nothing was due counts as unused up
  // to `credit_max` >= 0: what a timer wakes late is made up for.
  TokenBucket(double bytes_per_second, absl::Duration credit_max)
      : bytes_per_second_(bytes_per_second), credit_max_(credit_max) {}

  // Takes `bytes` >= 0; returns when they may move: `now` or later. `now` may
  // go backwards: it is a time before the last one, no more.
  absl::Time Take(int64_t bytes, absl::Time now);

  // `bytes` that were taken are not going to move.
  void GiveBack(int64_t bytes) { due_ -= ToSpan(bytes); }

 private:
  absl::Duration ToSpan(int64_t bytes) const {
    return absl::Seconds(static_cast<double>(bytes) / bytes_per_second_);
  }

  const double bytes_per_second_;
  const absl::Duration credit_max_;
  absl::Time due_ = absl::InfinitePast();  // Of the next byte to be taken.
};

}  // namespace atl

#endif  // BASE_TIME_TOKEN_BUCKET_H_
