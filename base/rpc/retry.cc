#include "base/rpc/retry.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "base/codec/bits.h"
#include "base/status/refusal.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kRetryInfoMax = absl::Minutes(1);
constexpr double kLongBackoffFactor = 4.0;

}  // namespace

absl::Duration DelayAsked(absl::Duration delay, const absl::Status& status) {
  const std::optional<absl::Duration> asked = GetRetryDelay(status);
  if (!asked.has_value()) return delay;
  return std::max(delay, std::min(*asked, kRetryInfoMax));
}

uint64_t RandomSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

Backoff::Backoff(const RetryPolicy& policy, uint64_t seed)
    : policy_(policy), state_(seed) {}

absl::Duration Backoff::Next(const absl::Status& status) {
  // The exponent is capped: 2^60 exceeds any bound, and nothing overflows.
  const double growth = std::exp2(std::min(attempt_count_, 60));
  ++attempt_count_;
  absl::Duration delay = policy_.initial_delay * std::min(growth, 1e9);
  // The peer is full.
  if (absl::IsResourceExhausted(status)) delay *= kLongBackoffFactor;
  delay = std::min(delay, policy_.max_delay);
  const uint64_t random = codec::SplitMix64(state_);
  state_ += codec::kSplitMixStep;
  const double unit = static_cast<double>(random >> 11) * 0x1.0p-53;  // [0, 1).
  // Others may have been told the same time at the same moment.
  const absl::Duration asked = DelayAsked(absl::ZeroDuration(), status);
  return std::max(delay * (0.5 + 0.5 * unit), asked * (1 + 0.25 * unit));
}

}  // namespace atl::rpc
