// Which calls are retried, and after which delay. Pure: no clock, no sleep; the
// jitter comes from a seed. Thread-compatible.
//
// Wait n (from 0) is drawn uniformly from [d/2, d),
// d = min(initial * multiplier^n, max): exponential backoff with jitter, so
// that peers that lost the same server do not return at the same time.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace atl::rpc {

struct RetryPolicy {
  absl::Duration initial_delay = absl::Milliseconds(100);  // > 0.
  absl::Duration max_delay = absl::Seconds(5);             // >= initial.
  double multiplier = 2.0;                                 // >= 1.
};

// What an error code asks of the caller (the error table of proto/DESIGN.md).
enum class RetryClass {
  // OK, or an error that a retry would repeat.
  kNever,
  // UNAVAILABLE; DATA_LOSS on the wire: the same call again, with backoff.
  kBackoff,
  // RESOURCE_EXHAUSTED: the same call again, with four times the delay.
  kLongBackoff,
  // FAILED_PRECONDITION: again after the plan has changed.
  kAfterPlanChange,
  // ABORTED; NOT_FOUND on a data call: fetch the plan and decide again.
  kAfterDecision,
};

RetryClass ClassifyControl(const absl::Status& status);
// The class of a push or a pull.
RetryClass ClassifyData(const absl::Status& status);

// Delays of one sequence of attempts.
class Backoff {
 public:
  Backoff(const RetryPolicy& policy, uint64_t seed);

  // The delay before the next attempt after `status`. A RetryInfo in it is a
  // lower bound (at most a minute).
  absl::Duration Next(const absl::Status& status);

  // Call it when an attempt makes progress: the delays start over.
  void Reset() { attempt_count_ = 0; }

  int attempt_count() const { return attempt_count_; }

 private:
  RetryPolicy policy_;
  uint64_t state_;
  int attempt_count_ = 0;
};

}  // namespace atl::rpc
