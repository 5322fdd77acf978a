#include "worker/engine/sampling.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace atl::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(SamplingTest, InvertsTheDistributionOfTheSoftmax) {
  // Probabilities 1/8, 1/2, 3/8.
  const std::vector<float> logits = {0.0f, std::log(4.0f), std::log(3.0f)};
  EXPECT_EQ(SampleToken(logits, 1.0, 0.0), 0);
  EXPECT_EQ(SampleToken(logits, 1.0, 0.124), 0);
  EXPECT_EQ(SampleToken(logits, 1.0, 0.126), 1);
  EXPECT_EQ(SampleToken(logits, 1.0, 0.624), 1);
  EXPECT_EQ(SampleToken(logits, 1.0, 0.626), 2);
  EXPECT_EQ(SampleToken(logits, 1.0, 0.9999999999), 2);
}

TEST(SamplingTest, TemperatureSharpensAndZeroTakesTheFirstLargest) {
  const std::vector<float> logits = {1.0f, 3.0f, 3.0f, 2.0f};
  EXPECT_EQ(SampleToken(logits, 0.0, 0.99), 1);
  // At temperature 1/2 the largest two have 0.44 each.
  EXPECT_EQ(SampleToken(logits, 0.5, 0.43), 1);
  EXPECT_EQ(SampleToken(logits, 0.5, 0.85), 2);
}

TEST(SamplingTest, NeverTakesWhatIsNotFinite) {
  const std::vector<float> logits = {kNan, kInfinity, 0.5f, -kInfinity};
  for (double uniform : {0.0, 0.5, 0.999}) {
    EXPECT_EQ(SampleToken(logits, 1.0, uniform), 2);
  }
  EXPECT_EQ(SampleToken(logits, 0.0, 0.5), 2);
  EXPECT_EQ(SampleToken(std::vector<float>{kNan, kNan}, 1.0, 0.5), 0);
}

TEST(SamplingTest, CountedNumbersAreRepeatableSpreadAndInRange) {
  EXPECT_EQ(CounterUniform(5, 9), CounterUniform(5, 9));
  EXPECT_NE(CounterUniform(5, 9), CounterUniform(6, 9));
  EXPECT_NE(CounterUniform(5, 9), CounterUniform(5, 10));
  std::vector<int> buckets(10);
  for (uint64_t counter = 0; counter < 10000; ++counter) {
    const double u = CounterUniform(42, counter);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++buckets[static_cast<size_t>(u * 10)];
  }
  for (int count : buckets) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace atl::engine
