// Calls again after failures that may pass, within a budget. Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/rpc/retry.h"
#include "base/time/clock.h"

namespace atl {

// The tries and the time that a call may take without progress.
struct RetryBudget {
  int attempt_count_max = 10;                  // >= 1.
  absl::Duration time_max = absl::Minutes(5);  // Waits end at it.
  rpc::RetryPolicy delays = {.initial_delay = absl::Milliseconds(200),
                             .max_delay = absl::Seconds(20)};
};

// How calls wait. Tests replace the clock and the sleep.
struct Waiting {
  const Clock* clock = &SystemClock();  // Outlives its users.
  // Empty: absl::SleepFor. Called with at most 100 ms at a time.
  std::function<void(absl::Duration)> sleep;
  // True ends the call with CANCELLED. Empty: never. Called often, from the
  // calling thread.
  std::function<bool()> cancelled;
};

// Sleeps for `delay`, or less if `waiting` is cancelled: CANCELLED.
absl::Status Sleep(const Waiting& waiting, absl::Duration delay);

class Retrier {
 public:
  // Progress of this many bytes starts the budget anew.
  static constexpr int64_t kProgressBytes = 1 << 20;

  // `seed` is of the jitter.
  Retrier(const RetryBudget& budget, Waiting waiting, uint64_t seed)
      : budget_(budget), waiting_(std::move(waiting)), seed_(seed) {}

  // Calls `attempt` until it returns anything but UNAVAILABLE, or the budget is
  // spent. A RetryInfo in its error is a lower bound of the wait, at most a
  // minute. `progress` gives the bytes that attempts have moved so far.
  //
  // UNAVAILABLE: the last error, with the count of attempts. CANCELLED.
  absl::Status Run(
      absl::FunctionRef<absl::Status()> attempt,
      absl::FunctionRef<int64_t()> progress = [] { return 0; });

 private:
  const RetryBudget budget_;
  const Waiting waiting_;
  uint64_t seed_;
};

}  // namespace atl
