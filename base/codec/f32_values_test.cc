#include "base/codec/f32_values.h"

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::codec {
namespace {

class F32ValuesTest : public testing::Test {
 protected:
  F32ValuesTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  std::vector<float> Values(size_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& value : x) value = normal(random_);
    return x;
  }

  const uint32_t seed_;
  std::mt19937 random_;
};

TEST_F(F32ValuesTest, FindsAValueThatIsNotFiniteWhereverItIs) {
  for (const size_t n : {1, 7, 8, 31, 32, 33, 100, 135}) {
    std::vector<float> x = Values(n);
    x[0] = std::numeric_limits<float>::max();
    x[n - 1] = -std::numeric_limits<float>::max();
    EXPECT_TRUE(AllFinite(x));
    for (size_t i = 0; i < n; ++i) {
      for (const float bad : {HUGE_VALF, -HUGE_VALF, NAN, -NAN}) {
        std::vector<float> y = x;
        y[i] = bad;
        EXPECT_FALSE(AllFinite(y)) << i << " of " << n;
        EXPECT_EQ(AllFinite(y), AllFinitePlain(y));
      }
    }
  }
  EXPECT_TRUE(AllFinite({}));
}

TEST_F(F32ValuesTest, SubtractsElementByElement) {
  for (const size_t n : {0, 1, 8, 9, 4096, 4091}) {
    const std::vector<float> a = Values(n);
    const std::vector<float> b = Values(n);
    std::vector<float> expected(n);
    for (size_t i = 0; i < n; ++i) expected[i] = a[i] - b[i];
    std::vector<float> difference(n);
    Subtract(n, a.data(), b.data(), difference.data());
    EXPECT_EQ(difference, expected);
    difference = a;
    Subtract(n, difference.data(), b.data(), difference.data());
    EXPECT_EQ(difference, expected);
  }
}

}  // namespace
}  // namespace atl::codec
