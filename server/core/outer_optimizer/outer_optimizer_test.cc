#include "server/core/outer_optimizer/outer_optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/codec/block_grid.h"
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

// --- Buffers -----------------------------------------------------------------

// Two weights, and between them a buffer of two blocks; one fragment.
v1::Layout LayoutWith(v1::TensorClass tensor_class) {
  v1::Layout layout;
  layout.set_fragment_count(1);
  const int64_t sizes[] = {100, codec::kBlockElements + 3, 50};
  for (int i = 0; i < 3; ++i) {
    v1::TensorSpec& tensor = *layout.add_tensors();
    tensor.set_name("t" + std::to_string(i));
    tensor.add_shape(sizes[i]);
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(i == 1 ? tensor_class : v1::TENSOR_CLASS_MATRIX);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  return layout;
}

// The arrays of a fragment, stepped in tiles of two blocks.
class Fragment {
 public:
  Fragment(const v1::OuterSpec& spec, const RunLayout& layout,
           const std::vector<float>& theta)
      : optimizer_(*MakeOuterOptimizer(spec)),
        layout_(layout),
        theta_(theta),
        made_(theta.size()) {
    for (int i = 0; i < 2; ++i) {
      state_[i].assign(theta.size(), i < optimizer_->state_count()
                                         ? optimizer_->initial_state(i)
                                         : 0.0f);
      made_state_[i].resize(theta.size());
    }
  }

  // In place, or into other arrays that the old ones are then exchanged for.
  void Step(int64_t version, const std::vector<float>& gradient,
            bool in_place) {
    const int64_t end = layout_.fragment_block_count(0);
    for (int64_t begin = 0; begin < end; begin += 2) {
      const IndexRange blocks = {begin, std::min(begin + 2, end)};
      const IndexRange elements = layout_.BlockElements(0, blocks);
      OuterTile tile;
      tile.count = elements.size();
      tile.version = version;
      tile.gradient = gradient.data() + elements.begin;
      tile.theta = (in_place ? theta_ : made_).data() + elements.begin;
      if (!in_place) tile.old_theta = theta_.data() + elements.begin;
      for (int i = 0; i < optimizer_->state_count(); ++i) {
        tile.state[i] =
            (in_place ? state_[i] : made_state_[i]).data() + elements.begin;
        if (!in_place) tile.old_state[i] = state_[i].data() + elements.begin;
      }
      StepBlocks(*optimizer_, layout_, 0, blocks, tile);
    }
    if (in_place) return;
    theta_.swap(made_);
    for (int i = 0; i < 2; ++i) state_[i].swap(made_state_[i]);
  }

  const OuterOptimizer& optimizer() const { return *optimizer_; }
  const std::vector<float>& theta() const { return theta_; }
  const std::vector<float>& state(int i) const { return state_[i]; }

 private:
  const std::unique_ptr<OuterOptimizer> optimizer_;
  const RunLayout& layout_;
  std::vector<float> theta_, made_;
  std::vector<float> state_[2], made_state_[2];
};

// Three islands observe variances, and each round merges them with unequal
// weights. The reference is their mean in f64.
TEST(OuterOptimizerTest, ABufferIsTheMeanOfTheIslandsWithEveryOptimizer) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const RunLayout layout =
      *RunLayout::Create(LayoutWith(v1::TENSOR_CLASS_BUFFER));
  const RunLayout plain =
      *RunLayout::Create(LayoutWith(v1::TENSOR_CLASS_VECTOR));
  const IndexRange buffer = layout.BlockElements(0, {1, 3});
  const float weights[] = {0.5f, 0.3125f, 0.1875f};
  std::vector<v1::OuterOptimizerKind> kinds(std::begin(kAll), std::end(kAll));
  kinds.push_back(v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
  for (const auto kind : kinds) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const v1::OuterSpec spec = MakeSpec(kind);
    const std::vector<float> first(layout.element_count(), 1.0f);
    Fragment fragment(spec, layout, first);
    Fragment without(spec, plain, first);
    bool is_negative_without = false;
    for (int64_t version = 0; version < 6; ++version) {
      std::vector<float> gradient(first.size());
      std::vector<double> mean(first.size());
      for (int64_t i = 0; i < gradient.size(); ++i) {
        const float old = fragment.theta()[i];
        for (const float weight : weights) {
          // A variance falls by a tenth a step towards a smaller one.
          const float local =
              0.1f * old + 0.01f * std::abs(normal(random));
          gradient[i] += weight * (old - local);
          mean[i] += static_cast<double>(weight) * local;
        }
      }
      const bool in_place = version % 2 == 1;
      fragment.Step(version, gradient, in_place);
      without.Step(version, gradient, in_place);
      for (int64_t i = 0; i < gradient.size(); ++i) {
        const float theta = fragment.theta()[i];
        if (i >= buffer.begin && i < buffer.end) {
          ASSERT_NEAR(theta, mean[i], 1e-6) << kind << " " << i;
          ASSERT_GT(theta, 0) << kind << " " << i;
          is_negative_without |= without.theta()[i] < 0;
          for (int s = 0; s < fragment.optimizer().state_count(); ++s) {
            ASSERT_EQ(fragment.state(s)[i],
                      fragment.optimizer().initial_state(s));
          }
        } else {
          ASSERT_EQ(theta, without.theta()[i]) << kind << " " << i;
          for (int s = 0; s < fragment.optimizer().state_count(); ++s) {
            ASSERT_EQ(fragment.state(s)[i], without.state(s)[i]);
          }
        }
      }
    }
    if (kind == v1::OUTER_OPTIMIZER_KIND_NESTEROV) {
      EXPECT_TRUE(is_negative_without) << "the control";
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
