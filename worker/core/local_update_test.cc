#include "worker/core/local_update.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

uint64_t Seed() {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed " << seed << "\n";
  return seed;
}

std::vector<float> Random(std::mt19937_64& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(LocalUpdateTest, WithoutABlendTheLocalValuesAreTheAnswerBitForBit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = {1, -0.0f, nan, 4, 5};
  const std::vector<float> v = {-0.0f, 0.0f, 2, 1e-45f, -3e38f};
  BlendIn(absl::MakeSpan(x), v, 0);
  EXPECT_EQ(std::memcmp(x.data(), v.data(), x.size() * sizeof(float)), 0);
}

TEST(LocalUpdateTest, AWholeBlendKeepsTheLocalValues) {
  std::mt19937_64 random(Seed());
  std::vector<float> x = Random(random, 100);
  const std::vector<float> before = x;
  BlendIn(absl::MakeSpan(x), Random(random, 100), 1);
  EXPECT_EQ(x, before);
}

// arXiv 2501.18512, algorithm 2: theta_m = alpha theta_m + (1 - alpha) theta.
TEST(LocalUpdateTest, ABlendIsTheMeanThatThePaperTakes) {
  std::mt19937_64 random(Seed());
  for (const float b : {0.25f, 0.5f, 0.9f}) {
    std::vector<float> x = Random(random, 100);
    const std::vector<float> before = x;
    const std::vector<float> v = Random(random, 100);
    BlendIn(absl::MakeSpan(x), v, b);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected =
          double{b} * before[i] + (1 - double{b}) * v[i];
      EXPECT_NEAR(x[i], expected,
                  1e-6 * (std::abs(before[i]) + std::abs(v[i])));
    }
  }
}

// An island's prediction against the servers' step in f64.
TEST(EagerStepTest, ForeseesTheServersStepFromItsOwnShare) {
  std::mt19937_64 random(Seed());
  std::normal_distribution<double> normal;
  for (const v1::OuterOptimizerKind kind :
       {v1::OUTER_OPTIMIZER_KIND_SGD, v1::OUTER_OPTIMIZER_KIND_MOMENTUM,
        v1::OUTER_OPTIMIZER_KIND_NESTEROV, v1::OUTER_OPTIMIZER_KIND_FEDAVG}) {
    v1::OuterSpec outer;
    outer.set_optimizer(kind);
    outer.set_learning_rate(0.7);
    const bool plain = kind == v1::OUTER_OPTIMIZER_KIND_SGD ||
                       kind == v1::OUTER_OPTIMIZER_KIND_FEDAVG;
    outer.set_momentum(plain ? 0 : 0.9);
    const double rate = kind == v1::OUTER_OPTIMIZER_KIND_FEDAVG ? 1 : 0.7;
    const double beta = outer.momentum();
    const EagerStep eager(outer);
    const double weight = 0.25;
    double master = 1, momentum = 0;
    std::vector<float> m = {0}, p = {0};
    const auto step = [&](double gradient, double* after) {
      *after = beta * momentum + gradient;
      if (kind == v1::OUTER_OPTIMIZER_KIND_NESTEROV) {
        return rate * (gradient + beta * *after);
      }
      return rate * *after;
    };
    for (int round = 0; round < 20; ++round) {
      const double own = normal(random), others = normal(random);
      const std::vector<float> anchor = {static_cast<float>(master)};
      std::vector<float> x = {static_cast<float>(master - own)};
      eager.Foresee(anchor, weight, absl::MakeSpan(x), absl::MakeSpan(p),
                    absl::MakeSpan(m));
      double after;
      const double foreseen = master - step(weight * own, &after);
      EXPECT_NEAR(p[0], foreseen, 2e-4) << "round " << round;
      EXPECT_EQ(x[0], p[0]);
      // Inner steps while the answer is in flight are kept whole.
      const double trained = normal(random);
      x[0] += static_cast<float>(trained);
      master -= step(weight * own + others, &after);
      momentum = after;
      const std::vector<float> v = {static_cast<float>(master)};
      eager.Correct(v, p, absl::MakeSpan(x), absl::MakeSpan(m));
      EXPECT_NEAR(x[0], master + trained, 2e-4);
      EXPECT_NEAR(m[0], momentum, 2e-3);
    }
  }
}

TEST(EagerStepTest, AnIslandThatJoinsLateLearnsTheMomentum) {
  v1::OuterSpec outer;
  outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  outer.set_learning_rate(0.5);
  outer.set_momentum(0.9);
  const EagerStep eager(outer);
  double master = 0, momentum = 10;  // The island assumes 0.
  std::vector<float> m = {0}, p = {0};
  for (int round = 0; round < 12; ++round) {
    const std::vector<float> anchor = {static_cast<float>(master)};
    std::vector<float> x = {static_cast<float>(master - 1)};
    eager.Foresee(anchor, 0.5f, absl::MakeSpan(x), absl::MakeSpan(p),
                  absl::MakeSpan(m));
    momentum = 0.9 * momentum + 1;
    master -= 0.5 * (1 + 0.9 * momentum);
    const std::vector<float> v = {static_cast<float>(master)};
    eager.Correct(v, p, absl::MakeSpan(x), absl::MakeSpan(m));
  }
  EXPECT_NEAR(m[0], momentum, 0.02 * momentum);
}

}  // namespace
}  // namespace atl::worker
