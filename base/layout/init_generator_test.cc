#include "base/layout/init_generator.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

v1::TensorInit Normal(double stddev) {
  v1::TensorInit init;
  init.set_kind(v1::INIT_KIND_NORMAL);
  init.set_value(stddev);
  return init;
}

TEST(InitGeneratorTest, AnElementDoesNotDependOnWhereTheRangeBegins) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::vector<float> whole(10000);
  GenerateInit(Normal(0.02), seed, 3, 0, absl::MakeSpan(whole));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 50; ++trial) {
    const int64_t begin = random() % whole.size();
    std::vector<float> part(random() % (whole.size() - begin) + 1);
    GenerateInit(Normal(0.02), seed, 3, begin, absl::MakeSpan(part));
    for (size_t i = 0; i < part.size(); ++i) {
      ASSERT_EQ(part[i], whole[begin + i]) << begin << " + " << i;
    }
  }
}

TEST(InitGeneratorTest, HasTheMomentsOfANormalDistribution) {
  std::vector<float> x(1 << 20);
  GenerateInit(Normal(2.0), 7, 0, 0, absl::MakeSpan(x));
  double sum = 0, square = 0, fourth = 0;
  for (const double v : x) {
    sum += v;
    square += v * v;
    fourth += v * v * v * v;
  }
  const double n = x.size();
  EXPECT_NEAR(sum / n, 0, 5 * 2 / std::sqrt(n));
  EXPECT_NEAR(square / n, 4, 5 * 4 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n / 16, 3, 5 * std::sqrt(96 / n));
}

TEST(InitGeneratorTest, SeedAndTensorGiveOtherNumbers) {
  std::vector<float> a(8), b(8), c(8);
  GenerateInit(Normal(1), 1, 0, 0, absl::MakeSpan(a));
  GenerateInit(Normal(1), 2, 0, 0, absl::MakeSpan(b));
  GenerateInit(Normal(1), 1, 1, 0, absl::MakeSpan(c));
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(InitGeneratorTest, LogarithmAndQuantileAgreeWithTheLibrary) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 10000; ++trial) {
    const double u = (static_cast<double>(random() >> 12) + 0.5) * 0x1p-52;
    EXPECT_NEAR(DeterministicLog(u), std::log(u),
                4e-15 * std::max(1.0, std::abs(std::log(u))));
    const double z = NormalQuantile(u);
    EXPECT_NEAR(0.5 * std::erfc(-z / std::sqrt(2.0)), u, 1e-13 + 1e-12 * u);
  }
}

}  // namespace
}  // namespace atl
