// The wait after a failed action. Thread-safe.

#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/rpc/retry.h"

namespace atl::worker {

// After `failure_count` >= 1 failures in a row: a random part, between a half
// and all, of 100 ms, doubled up to 5 s. So islands that failed together do not
// come again together.
inline absl::Duration RetryBackoff(int failure_count) {
  constexpr int kDoubledMax = 7;  // More change nothing.
  rpc::Backoff backoff({absl::Milliseconds(100), absl::Seconds(5)},
                       rpc::RandomSeed());
  absl::Duration wait;
  for (int i = 0; i < std::min(failure_count, kDoubledMax); ++i) {
    wait = backoff.Next(absl::OkStatus());
  }
  return wait;
}

}  // namespace atl::worker
