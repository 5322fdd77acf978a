#include "server/core/merge/merge_rule.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

class PlainKernels : public MergeKernels {
 public:
  void Scale(int64_t n, float weight, const float* x,
             float* sum) const override {
    for (int64_t i = 0; i < n; ++i) sum[i] = weight * x[i];
  }
  void Accumulate(int64_t n, float weight, const float* x,
                  float* sum) const override {
    for (int64_t i = 0; i < n; ++i) {
      const float product = weight * x[i];
      sum[i] = sum[i] + product;
    }
  }
};

TEST(WeightedMeanTest, AddsTheProductsFromTheLeft) {
  std::random_device device;
  const unsigned seed = device();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int n = 100;
  std::vector<std::vector<float>> x(4, std::vector<float>(n));
  std::vector<float> weights = {0.1f, 0.2f, 0.3f, 0.4f};
  for (auto& row : x) {
    for (float& value : row) value = normal(random);
  }
  // What is in the sum before the first contribution does not matter.
  std::vector<float> g(n, 1e30f);
  const auto rule = MakeMergeRule(v1::OuterSpec());
  for (int i = 0; i < 4; ++i) {
    rule->Add(PlainKernels(), i, weights[i], n, x[i].data(), g.data());
  }
  for (int e = 0; e < n; ++e) {
    volatile float sum = weights[0] * x[0][e];
    for (int i = 1; i < 4; ++i) {
      volatile float product = weights[i] * x[i][e];
      sum = sum + product;
    }
    EXPECT_EQ(g[e], sum) << e;
  }
}

TEST(WeightedMeanTest, OneContributionWithWeightOneIsItself) {
  const std::vector<float> x = {1.5f, -2.25f, 0.0f};
  std::vector<float> g(3);
  MakeWeightedMean()->Add(PlainKernels(), 0, 1.0f, 3, x.data(), g.data());
  EXPECT_EQ(g, x);
}

}  // namespace
}  // namespace atl::server
