#include "server/core/outer_optimizer/outer_optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/kernels/outer_steps.h"

namespace atl::server {
namespace {

v1::OuterSpec MakeSpec(v1::OuterOptimizerKind kind) {
  v1::OuterSpec spec;
  spec.set_optimizer(kind);
  spec.set_learning_rate(0.5);
  spec.set_momentum(0.9);
  spec.set_beta1(0.9);
  spec.set_beta2(0.99);
  spec.set_tau(1e-3);
  spec.set_buffer_count(4);
  spec.set_momentum_share(0.1);
  return spec;
}

struct Element {
  float theta = 1.0f;
  float state[2] = {};
};

Element StepOnce(const v1::OuterSpec& spec, float gradient) {
  auto optimizer = MakeOuterOptimizer(spec);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  Element element;
  for (int i = 0; i < (*optimizer)->state_count(); ++i) {
    element.state[i] = (*optimizer)->initial_state(i);
  }
  OuterTile tile;
  tile.count = 1;
  tile.gradient = &gradient;
  tile.theta = &element.theta;
  tile.state[0] = &element.state[0];
  tile.state[1] = &element.state[1];
  (*optimizer)->Step(tile);
  return element;
}

constexpr v1::OuterOptimizerKind kAll[] = {
    v1::OUTER_OPTIMIZER_KIND_SGD,      v1::OUTER_OPTIMIZER_KIND_MOMENTUM,
    v1::OUTER_OPTIMIZER_KIND_NESTEROV, v1::OUTER_OPTIMIZER_KIND_FEDAVG,
    v1::OUTER_OPTIMIZER_KIND_FEDAVGM,  v1::OUTER_OPTIMIZER_KIND_FEDADAM,
    v1::OUTER_OPTIMIZER_KIND_FEDYOGI,  v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD};

TEST(OuterOptimizerTest, APositiveOuterGradientLowersTheParameter) {
  for (const auto kind : kAll) {
    EXPECT_LT(StepOnce(MakeSpec(kind), 0.25f).theta, 1.0f) << kind;
    EXPECT_GT(StepOnce(MakeSpec(kind), -0.25f).theta, 1.0f) << kind;
  }
}

TEST(OuterOptimizerTest, FedAvgTakesTheMeanItselfWhateverTheLearningRate) {
  const Element element =
      StepOnce(MakeSpec(v1::OUTER_OPTIMIZER_KIND_FEDAVG), 0.25f);
  EXPECT_EQ(element.theta, 0.75f);
}

TEST(OuterOptimizerTest, TheFirstMomentumIsTheGradientItselfEvenIfMinusZero) {
  for (const auto kind :
       {v1::OUTER_OPTIMIZER_KIND_MOMENTUM, v1::OUTER_OPTIMIZER_KIND_NESTEROV,
        v1::OUTER_OPTIMIZER_KIND_FEDAVGM}) {
    EXPECT_TRUE(std::signbit(StepOnce(MakeSpec(kind), -0.0f).state[0])) << kind;
    EXPECT_FALSE(std::signbit(StepOnce(MakeSpec(kind), 0.0f).state[0])) << kind;
    EXPECT_EQ(StepOnce(MakeSpec(kind), 3.0f).state[0], 3.0f) << kind;
  }
}

// arXiv 2003.00295, algorithm 2, by hand, in f64, at its first step.
TEST(OuterOptimizerTest,
     AdaptiveRulesStartFromTauSquaredWithoutBiasCorrection) {
  const double g = 0.25, delta = -g, tau = 1e-3, lr = 0.5;
  const double m = 0.1 * delta;
  const double v0 = tau * tau;
  const struct {
    v1::OuterOptimizerKind kind;
    double v;
  } cases[] = {
      {v1::OUTER_OPTIMIZER_KIND_FEDADAM, 0.99 * v0 + 0.01 * delta * delta},
      {v1::OUTER_OPTIMIZER_KIND_FEDYOGI, v0 + 0.01 * delta * delta},
      {v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD, v0 + delta * delta},
  };
  for (const auto& c : cases) {
    const Element element = StepOnce(MakeSpec(c.kind), static_cast<float>(g));
    EXPECT_NEAR(element.state[0], m, 1e-7) << c.kind;
    EXPECT_NEAR(element.state[1], c.v, 1e-7 * c.v + 1e-9) << c.kind;
    EXPECT_NEAR(element.theta, 1.0 + lr * m / (std::sqrt(c.v) + tau), 1e-6)
        << c.kind;
  }
}

// arXiv 2401.09135, algorithm 3, in f64: between two momentum updates a step is
// the gradient's share and c of the momentum.
TEST(OuterOptimizerTest, DelayedNesterovTakesTheMomentumInEveryNContributions) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const v1::OuterSpec spec =
      MakeSpec(v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
  const auto optimizer = *MakeOuterOptimizer(spec);
  const double lr = 0.5, beta = 0.9, count = 4, c = 0.1;
  float gradient = 0, theta = 1;
  float state[2] = {optimizer->initial_state(0), optimizer->initial_state(1)};
  double expected = 1, m = 0, sum = 0;
  for (int t = 0; t < 20; ++t) {
    gradient = normal(random);
    OuterTile tile;
    tile.count = 1;
    tile.version = t;
    tile.gradient = &gradient;
    tile.theta = &theta;
    tile.state[0] = &state[0];
    tile.state[1] = &state[1];
    optimizer->Step(tile);
    sum += gradient;
    double weight = c;
    if ((t + 1) % 4 == 0) {
      m = beta * m + sum / count;
      sum = 0;
      weight = 1 - c * count + c;
    }
    expected -= lr * (weight * beta * m + gradient / count);
    EXPECT_NEAR(theta, expected, 1e-5) << t;
    EXPECT_NEAR(state[0], m, 1e-5) << t;
  }
}

// The first step of each kind is that of its plain definition, bit for bit.
TEST(OuterOptimizerTest, EachKindTakesItsOwnStep) {
  const float lr = 0.5f, momentum = 0.9f, g = 1.0f;
  const kernels::AdaptiveConstants<float> adaptive = {
      lr,
      0.9f,
      static_cast<float>(1 - 0.9),
      0.99f,
      static_cast<float>(1 - 0.99),
      1e-3f};
  const kernels::DelayedConstants<float> delayed = {
      lr, momentum, 4, static_cast<float>(0.1 * 0.9),
      static_cast<float>((1 - 0.1 * 4 + 0.1) * 0.9)};
  using Step = std::function<void(Element&)>;
  const Step with_momentum = [&](Element& e) {
    kernels::MomentumStepPlain(1, lr, momentum, &g, &e.theta, &e.state[0]);
  };
  const struct {
    v1::OuterOptimizerKind kind;
    Step step;
  } cases[] = {
      {v1::OUTER_OPTIMIZER_KIND_SGD,
       [&](Element& e) { kernels::SgdStepPlain(1, lr, &g, &e.theta); }},
      {v1::OUTER_OPTIMIZER_KIND_MOMENTUM, with_momentum},
      {v1::OUTER_OPTIMIZER_KIND_NESTEROV,
       [&](Element& e) {
         kernels::NesterovStepPlain(1, lr, momentum, &g, &e.theta, &e.state[0]);
       }},
      {v1::OUTER_OPTIMIZER_KIND_FEDAVG,
       [&](Element& e) { kernels::SgdStepPlain(1, 1.0f, &g, &e.theta); }},
      {v1::OUTER_OPTIMIZER_KIND_FEDAVGM, with_momentum},
      {v1::OUTER_OPTIMIZER_KIND_FEDADAM,
       [&](Element& e) {
         kernels::FedAdamStepPlain(1, adaptive, &g, &e.theta, &e.state[0],
                                   &e.state[1]);
       }},
      {v1::OUTER_OPTIMIZER_KIND_FEDYOGI,
       [&](Element& e) {
         kernels::FedYogiStepPlain(1, adaptive, &g, &e.theta, &e.state[0],
                                   &e.state[1]);
       }},
      {v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD,
       [&](Element& e) {
         kernels::FedAdagradStepPlain(1, adaptive, &g, &e.theta, &e.state[0],
                                      &e.state[1]);
       }},
      {v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV,
       [&](Element& e) {
         kernels::DelayedNesterovStepPlain(1, delayed, /*flush=*/false, &g,
                                           &e.theta, &e.state[0], &e.state[1]);
       }},
  };
  for (const auto& c : cases) {
    const auto optimizer = *MakeOuterOptimizer(MakeSpec(c.kind));
    Element expected;
    for (int i = 0; i < optimizer->state_count(); ++i) {
      expected.state[i] = optimizer->initial_state(i);
    }
    c.step(expected);
    const Element element = StepOnce(MakeSpec(c.kind), g);
    EXPECT_EQ(element.theta, expected.theta) << optimizer->name();
    for (int i = 0; i < optimizer->state_count(); ++i) {
      EXPECT_EQ(element.state[i], expected.state[i]) << optimizer->name();
    }
  }
}

TEST(OuterOptimizerTest, AConstantOutOfRangeIsNamed) {
  v1::OuterSpec spec = MakeSpec(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  spec.set_momentum(1.0);
  auto made = MakeOuterOptimizer(spec);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(made.status().message().find("outer.momentum"), std::string::npos);

  spec = MakeSpec(v1::OUTER_OPTIMIZER_KIND_FEDADAM);
  spec.set_tau(std::numeric_limits<double>::quiet_NaN());
  made = MakeOuterOptimizer(spec);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(made.status().message().find("outer.tau"), std::string::npos);

  spec = MakeSpec(v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
  spec.set_momentum_share(0.26);  // More than 1 / 4.
  made = MakeOuterOptimizer(spec);
  EXPECT_NE(made.status().message().find("outer.momentum_share"),
            std::string::npos);
  spec.set_buffer_count(0);
  made = MakeOuterOptimizer(spec);
  EXPECT_NE(made.status().message().find("outer.buffer_count"),
            std::string::npos);

  spec = MakeSpec(v1::OUTER_OPTIMIZER_KIND_UNSPECIFIED);
  EXPECT_EQ(MakeOuterOptimizer(spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::server
