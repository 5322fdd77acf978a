#include "base/rpc/retry.h"

#include <algorithm>
#include <cmath>

#include "base/rpc/status_details.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kRetryInfoMax = absl::Minutes(1);
constexpr double kLongBackoffFactor = 4.0;

// splitmix64.
uint64_t NextRandom(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

RetryClass ClassifyControl(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return RetryClass::kBackoff;
    case absl::StatusCode::kResourceExhausted:
      return RetryClass::kLongBackoff;
    case absl::StatusCode::kFailedPrecondition:
      return RetryClass::kAfterPlanChange;
    case absl::StatusCode::kAborted:
      return RetryClass::kAfterDecision;
    default:
      return RetryClass::kNever;
  }
}

RetryClass ClassifyData(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return RetryClass::kBackoff;
    case absl::StatusCode::kNotFound:
      return RetryClass::kAfterDecision;
    default:
      return ClassifyControl(status);
  }
}

Backoff::Backoff(const RetryPolicy& policy, uint64_t seed)
    : policy_(policy), state_(seed) {}

absl::Duration Backoff::Next(const absl::Status& status) {
  // The exponent is capped: 2^60 exceeds any bound, and nothing overflows.
  const double growth =
      std::pow(policy_.multiplier, std::min(attempt_count_, 60));
  ++attempt_count_;
  absl::Duration delay = policy_.initial_delay * std::min(growth, 1e9);
  if (ClassifyData(status) == RetryClass::kLongBackoff) {
    delay *= kLongBackoffFactor;
  }
  delay = std::min(delay, policy_.max_delay);
  const double unit =
      static_cast<double>(NextRandom(state_) >> 11) * 0x1.0p-53;  // [0, 1).
  delay *= 0.5 + 0.5 * unit;
  const auto asked = GetRetryDelay(status);
  if (asked.has_value())
    delay = std::max(delay, std::min(*asked, kRetryInfoMax));
  return delay;
}

}  // namespace atl::rpc
