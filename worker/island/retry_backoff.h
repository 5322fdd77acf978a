// How long an island waits after an action that failed.
//
// Pure. Thread-safe.

#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace atl::worker {

// After so many failures in a row (>= 1): 100 ms, twice that, ... up to 5 s.
inline absl::Duration RetryBackoff(int failure_count) {
  constexpr absl::Duration kMin = absl::Milliseconds(100);
  constexpr absl::Duration kMax = absl::Seconds(5);
  absl::Duration delay = kMin;
  for (int i = 1; i < failure_count && delay < kMax; ++i) delay *= 2;
  return std::min(delay, kMax);
}

}  // namespace atl::worker
