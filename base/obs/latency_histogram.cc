#include "base/obs/latency_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/status/check.h"

namespace atl {
namespace {

constexpr double kFirstBoundSeconds = 1e-4;
constexpr double kRatio = 1.05;

}  // namespace

void LatencyHistogram::Add(absl::Duration latency) {
  latency = std::max(latency, absl::ZeroDuration());
  ++counts_[FindBucket(latency)];
  ++count_;
  max_ = std::max(max_, latency);
}

absl::Duration LatencyHistogram::Quantile(double q) const {
  CHECK(q >= 0 && q <= 1) << q;
  if (count_ == 0) return absl::ZeroDuration();
  const int64_t rank = std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(q * static_cast<double>(count_))));
  int64_t seen = 0;
  for (int bucket = 0; bucket < kBucketCount - 1; ++bucket) {
    seen += counts_[bucket];
    if (seen >= rank) return std::min(UpperBound(bucket), max_);
  }
  return max_;
}

int LatencyHistogram::FindBucket(absl::Duration latency) {
  int bucket = 0;
  const double seconds = absl::ToDoubleSeconds(latency);
  if (seconds > kFirstBoundSeconds) {
    bucket = static_cast<int>(
        std::floor(std::log(seconds / kFirstBoundSeconds) / std::log(kRatio)));
  }
  bucket = std::clamp(bucket, 0, kBucketCount - 1);
  // The logarithm rounds; UpperBound defines the buckets.
  while (bucket < kBucketCount - 1 && latency > UpperBound(bucket)) ++bucket;
  return bucket;
}

absl::Duration LatencyHistogram::UpperBound(int bucket) {
  return absl::Seconds(kFirstBoundSeconds * std::pow(kRatio, bucket));
}

}  // namespace atl
