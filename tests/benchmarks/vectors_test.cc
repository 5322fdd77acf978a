#include "tests/benchmarks/vectors.h"

#include <vector>

#include "gtest/gtest.h"

namespace atl::benchmarks {
namespace {

// One round by hand: m = g, theta = -lr (g + mu g).
std::vector<float> AfterOneRound(size_t n, int island_count) {
  std::vector<float> theta(n);
  std::vector<float> gradient(n);
  for (int i = 0; i < island_count; ++i) {
    FillGradient(i, absl::MakeSpan(gradient));
    for (size_t e = 0; e < n; ++e) theta[e] += gradient[e] / island_count;
  }
  for (float& value : theta) value *= -kLearningRate * (1 + kMomentum);
  return theta;
}

TEST(VectorsTest, AcceptsWhatOneRoundGives) {
  EXPECT_EQ(CheckParameters(AfterOneRound(5000, 3), 3, 1), "");
}

TEST(VectorsTest, SeesAMissingRound) {
  EXPECT_NE(CheckParameters(AfterOneRound(5000, 3), 3, 2), "");
}

TEST(VectorsTest, SeesAnIslandCountedTwice) {
  EXPECT_NE(CheckParameters(AfterOneRound(5000, 3), 2, 1), "");
}

TEST(VectorsTest, SeesTheWrongSign) {
  std::vector<float> theta = AfterOneRound(5000, 2);
  for (float& value : theta) value = -value;
  EXPECT_NE(CheckParameters(theta, 2, 1), "");
}

TEST(VectorsTest, MakesZeros) {
  for (float value : MakeVector(3000)) ASSERT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace atl::benchmarks
