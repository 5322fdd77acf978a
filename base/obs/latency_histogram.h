// Counts latencies: number, quantiles, maximum.
//
// Pure; thread-compatible. Bounded: one counter for each 5 % step between 100
// us and 1,000 s. So a quantile is at most 5 % above the true one (below 100
// us: at most 100 us; above 1,000 s: the maximum).

#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace atl {

class LatencyHistogram {
 public:
  // Adds one latency; a negative one counts as zero.
  void Add(absl::Duration latency);

  int64_t count() const { return count_; }
  // The longest latency; zero without latencies.
  absl::Duration max() const { return max_; }
  // An upper bound of the share `q` of all latencies, at most max(); zero
  // without latencies. Requires: 0 <= q <= 1.
  absl::Duration Quantile(double q) const;

 private:
  // ceil(log(1,000 s / 100 us) / log(1.05)) steps, and one for longer
  // latencies.
  static constexpr int kBucketCount = 332;

  static int FindBucket(absl::Duration latency);
  static absl::Duration UpperBound(int bucket);

  std::array<int64_t, kBucketCount> counts_ = {};
  int64_t count_ = 0;
  absl::Duration max_;
};

}  // namespace atl
