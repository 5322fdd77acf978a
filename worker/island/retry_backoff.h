// The wait after a failed action. Pure. Thread-safe.

#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace atl::worker {

// After `failure_count` >= 1 failures in a row: 100 ms, doubled up to 5 s.
inline absl::Duration RetryBackoff(int failure_count) {
  constexpr absl::Duration kMin = absl::Milliseconds(100);
  constexpr absl::Duration kMax = absl::Seconds(5);
  absl::Duration delay = kMin;
  for (int i = 1; i < failure_count && delay < kMax; ++i) delay *= 2;
  return std::min(delay, kMax);
}

}  // namespace atl::worker
