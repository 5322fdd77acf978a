#include "base/obs/latency_histogram.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(LatencyHistogramTest, IsZeroWithoutAny) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0);
  EXPECT_EQ(histogram.max(), absl::ZeroDuration());
  EXPECT_EQ(histogram.Quantile(0.99), absl::ZeroDuration());
}

TEST(LatencyHistogramTest, IsAtMostFivePercentAboveTheTrueQuantile) {
  const uint32_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-3.9, 2.9);
  LatencyHistogram histogram;
  std::vector<double> all(1000);
  for (double& seconds : all) {
    seconds = std::pow(10.0, exponent(random));
    histogram.Add(absl::Seconds(seconds));
  }
  std::sort(all.begin(), all.end());
  for (double q : {0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double truth =
        all[std::max(1, static_cast<int>(std::ceil(q * 1000))) - 1];
    const double said = absl::ToDoubleSeconds(histogram.Quantile(q));
    EXPECT_GE(said, truth * (1 - 1e-9)) << q;
    EXPECT_LE(said, truth * 1.05 * (1 + 1e-9)) << q;
  }
  EXPECT_EQ(histogram.count(), 1000);
  EXPECT_NEAR(absl::ToDoubleSeconds(histogram.max()), all.back(), 1e-9);
}

TEST(LatencyHistogramTest, BearsWhatIsOutsideItsSteps) {
  LatencyHistogram histogram;
  histogram.Add(absl::Seconds(-1));
  EXPECT_EQ(histogram.Quantile(1), absl::ZeroDuration());
  histogram.Add(absl::Hours(5));
  EXPECT_EQ(histogram.Quantile(1), absl::Hours(5));
  histogram.Add(absl::InfiniteDuration());
  EXPECT_EQ(histogram.count(), 3);
  EXPECT_LE(histogram.Quantile(0.3), absl::Microseconds(100));
}

}  // namespace
}  // namespace atl
