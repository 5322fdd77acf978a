// Against formulas in f64. (trainer_test compares it to PyTorch.)

#include "worker/engine/optimizer/inner_optimizer.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine {
namespace {

class InnerOptimizerTest : public testing::Test {
 protected:
  InnerOptimizerTest()
      : layout_(MakeParameterLayout({.vocab_size = 5,
                                     .hidden_size = 4,
                                     .intermediate_size = 3,
                                     .layer_count = 1,
                                     .head_count = 2,
                                     .kv_head_count = 1})) {
    const uint64_t seed = std::random_device()();
    std::cout << "seed " << seed << std::endl;
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < layout_.element_count; ++i) {
      parameters_.push_back(normal(random));
      gradients_.push_back(normal(random));
    }
  }

  std::unique_ptr<InnerOptimizer> Make(const OptimizerOptions& options) {
    auto optimizer = InnerOptimizer::Create(options, layout_, ops_);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    return std::move(*optimizer);
  }

  double Norm() const {
    double sum = 0;
    for (double g : gradients_) sum += g * g;
    return std::sqrt(sum);
  }

  PlainOps<float> ops_;
  const ParameterLayout layout_;
  std::vector<float> parameters_, gradients_;
};

TEST_F(InnerOptimizerTest, AdamWFollowsItsFormulaWithClippingForThreeSteps) {
  OptimizerOptions options;
  options.clip_norm = 0.5;
  auto optimizer = Make(options);
  const size_t n = parameters_.size();
  std::vector<double> p(parameters_.begin(), parameters_.end()), m(n), v(n);
  const double lr = 3e-3, clip = 0.5 / (Norm() + 1e-6);
  for (int t = 1; t <= 3; ++t) {
    EXPECT_NEAR(optimizer->Step(lr, gradients_.data(), parameters_.data()),
                Norm(), 1e-6 * Norm());
    for (size_t i = 0; i < n; ++i) {
      const double g = gradients_[i] * clip;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, t));
      const double v_hat = v[i] / (1 - std::pow(0.95, t));
      p[i] = p[i] * (1 - lr * 0.1) - lr * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
  }
  EXPECT_EQ(optimizer->step_count(), 3);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_NEAR(parameters_[i], p[i], 1e-6 * (1 + std::abs(p[i])));
  }
}

TEST_F(InnerOptimizerTest, VectorsAreDecayedToo) {
  const std::vector<float> before = parameters_;
  gradients_.assign(gradients_.size(), 0.0f);
  Make({})->Step(0.5, gradients_.data(), parameters_.data());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_FLOAT_EQ(parameters_[i], before[i] * 0.95f);
  }
}

TEST_F(InnerOptimizerTest, ASmallGradientIsNotScaledUp) {
  OptimizerOptions options{.kind = OptimizerKind::kSgd};
  options.clip_norm = 2 * Norm();
  const std::vector<float> before = parameters_;
  Make(options)->Step(0.25, gradients_.data(), parameters_.data());
  for (size_t i = 0; i < before.size(); ++i) {
    const volatile float product = 0.25f * gradients_[i];
    EXPECT_EQ(parameters_[i], before[i] - product);
  }
}

TEST_F(InnerOptimizerTest, AGradientThatIsNotFiniteChangesNothing) {
  gradients_[7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = parameters_;
  auto optimizer = Make({});
  EXPECT_TRUE(
      std::isnan(optimizer->Step(0.1, gradients_.data(), parameters_.data())));
  EXPECT_EQ(parameters_, before);
  EXPECT_EQ(optimizer->step_count(), 0);
  for (float m : optimizer->first_moment()) EXPECT_EQ(m, 0.0f);
}

}  // namespace
}  // namespace atl::engine
