// After which delay a call is retried. No clock, no sleep; the jitter comes
// from a seed. Pure, except for RandomSeed. Thread-compatible.
//
// Wait n (from 0) is drawn uniformly from [d/2, d),
// d = min(initial * 2^n, max): exponential backoff with jitter, so
// that peers that lost the same server do not return at the same time.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace atl::rpc {

struct RetryPolicy {
  absl::Duration initial_delay = absl::Milliseconds(100);  // > 0.
  absl::Duration max_delay = absl::Seconds(5);             // >= initial.
};

// `delay`, or what the RetryInfo of `status` asks for if that is longer (at
// most a minute).
absl::Duration DelayAsked(absl::Duration delay, const absl::Status& status);

// A seed that differs by process and by call, so that peers that lost the same
// server do not draw the same waits.
uint64_t RandomSeed();

// Delays of one sequence of attempts.
class Backoff {
 public:
  Backoff(const RetryPolicy& policy, uint64_t seed);

  // The delay before the next attempt after `status`: at least what its
  // RetryInfo asks for, drawn from that time to a quarter more.
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
