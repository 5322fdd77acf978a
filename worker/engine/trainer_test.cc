#include "worker/engine/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/testing/golden.h"

namespace atl::engine {
namespace {

TrainerOptions MakeOptions(const GoldenCase& golden, int thread_count) {
  return {.model = golden.config,
          .optimizer = {},
          .schedule = GoldenSchedule(),
          .batch_size = golden.batch_size,
          .sequence_length = golden.sequence_length,
          .thread_count = thread_count};
}

std::unique_ptr<Trainer> Make(const TrainerOptions& options) {
  auto trainer = Trainer::Create(options);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return std::move(*trainer);
}

std::unique_ptr<Trainer> WithGoldenParameters(
    const GoldenCase& golden, std::unique_ptr<Trainer> trainer) {
  const std::vector<float> first = GoldenParameters(golden);
  std::copy(first.begin(), first.end(), trainer->parameters().begin());
  return trainer;
}

std::unique_ptr<Trainer> MakeGolden(const GoldenCase& golden,
                                    int thread_count = 1) {
  return WithGoldenParameters(golden, Make(MakeOptions(golden, thread_count)));
}

// After its first step the first moment is the gradient, bit by bit.
std::unique_ptr<Trainer> MakeGradientKeeper(const GoldenCase& golden) {
  TrainerOptions options = MakeOptions(golden, 1);
  options.optimizer.beta1 = 0;
  options.optimizer.clip_norm = 0;
  return WithGoldenParameters(golden, Make(options));
}

float StepOn(Trainer& trainer, const GoldenCase& golden, int step) {
  const GoldenTokens tokens = MakeGoldenTokens(golden, step);
  const auto loss = trainer.Step(tokens.inputs, tokens.targets, step);
  EXPECT_TRUE(loss.ok()) << loss.status();
  return loss.value_or(0.0f);
}

template <typename A, typename B>
bool SameBits(const A& a, const B& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

TEST(TrainerTest, TheFirstLossAndEveryGradientArePyTorchs) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    const GoldenResults expected = ReadGoldenResults(golden);
    auto trainer = MakeGradientKeeper(golden);
    EXPECT_NEAR(StepOn(*trainer, golden, 0), expected.loss,
                1e-6 * expected.loss);
    EXPECT_NEAR(trainer->gradient_norm(), expected.gradient_norm,
                1e-5 * expected.gradient_norm);
    EXPECT_NEAR(trainer->router_loss(), expected.router_loss,
                1e-5 * expected.router_loss);
    const absl::Span<const float> gradients =
        trainer->optimizer_state().first_moment;
    for (const ParameterSpec& spec : trainer->layout().parameters) {
      float largest = 0;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        largest =
            std::max(largest, std::abs(expected.gradient[spec.offset + i]));
      }
      for (int64_t i = 0; i < spec.element_count; ++i) {
        ASSERT_NEAR(gradients[spec.offset + i],
                    expected.gradient[spec.offset + i], 2e-5 * largest)
            << spec.name << " " << i;
      }
    }
  }
}

TEST(TrainerTest, TwentyAdamWStepsLoseAsPyTorchDoes) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    const GoldenResults expected = ReadGoldenResults(golden);
    auto trainer = MakeGolden(golden);
    for (int step = 0; step < kGoldenSteps; ++step) {
      EXPECT_NEAR(StepOn(*trainer, golden, step), expected.step_losses[step],
                  2e-5 * expected.step_losses[step])
          << "step " << step;
    }
    // AdamW divides by the root of v, so it amplifies rounding in elements
    // whose gradient is nearly zero. The test therefore compares whole vectors.
    // A bias of keys shifts all scores alike and softmax ignores it, so its
    // gradient is rounding alone.
    const int64_t channels = golden.config.hidden_size;
    std::set<int64_t> noise;
    for (const ParameterSpec& spec : trainer->layout().parameters) {
      if (!absl::EndsWith(spec.name, "c_attn.bias")) continue;
      for (int64_t i = channels; i < 2 * channels; ++i) {
        noise.insert(spec.offset + i);
      }
    }
    double difference = 0, total = 0;
    for (size_t i = 0; i < expected.final_parameters.size(); ++i) {
      if (noise.count(static_cast<int64_t>(i)) > 0) continue;
      const double p = expected.final_parameters[i];
      difference += std::pow(trainer->parameters()[i] - p, 2);
      total += p * p;
    }
    EXPECT_LT(std::sqrt(difference / total), 1e-4);
  }
}

TEST(TrainerTest, ThreadsDoNotChangeTheBits) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    auto one = MakeGolden(golden, 1), two = MakeGolden(golden, 2);
    for (int step = 0; step < 5; ++step) {
      EXPECT_EQ(StepOn(*one, golden, step), StepOn(*two, golden, step));
    }
    EXPECT_TRUE(SameBits(one->parameters(), two->parameters()));
  }
}

TEST(TrainerTest, InBf16ItLearnsAsInF32WithBitsThatThreadsDoNotChange) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    const GoldenResults expected = ReadGoldenResults(golden);
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (int threads : {1, 2}) {
      TrainerOptions options = MakeOptions(golden, threads);
      options.compute = ComputeType::kBf16;
      trainers.push_back(Make(options));
      const std::vector<float> first = GoldenParameters(golden);
      std::copy(first.begin(), first.end(),
                trainers.back()->parameters().begin());
    }
    bool differs = false;
    for (int step = 0; step < kGoldenSteps; ++step) {
      const float loss = StepOn(*trainers[0], golden, step);
      EXPECT_EQ(loss, StepOn(*trainers[1], golden, step));
      // bfloat16 has 8 bits: relative error at most 2^-9; the loss is near 4.
      EXPECT_NEAR(loss, expected.step_losses[step], 0.04) << "step " << step;
      differs |= std::abs(loss - expected.step_losses[step]) > 1e-5;
    }
    EXPECT_TRUE(differs) << "nothing was rounded";
    EXPECT_TRUE(SameBits(trainers[0]->parameters(), trainers[1]->parameters()));
  }
}

TEST(TrainerTest, ARestoredOptimizerGoesOnWithTheSameBits) {
  const GoldenCase golden = GoldenCases()[0];
  auto first = MakeGolden(golden);
  for (int step = 0; step < 3; ++step) StepOn(*first, golden, step);
  auto second = MakeGolden(golden);
  const OptimizerState from = first->optimizer_state();
  const OptimizerState to = second->optimizer_state();
  EXPECT_EQ(from.step_count, 3);
  std::copy(from.first_moment.begin(), from.first_moment.end(),
            to.first_moment.begin());
  std::copy(from.second_moment.begin(), from.second_moment.end(),
            to.second_moment.begin());
  second->set_optimizer_step_count(from.step_count);
  std::copy(first->parameters().begin(), first->parameters().end(),
            second->parameters().begin());
  StepOn(*first, golden, 3);
  StepOn(*second, golden, 3);
  EXPECT_TRUE(SameBits(first->parameters(), second->parameters()));

  second->ResetOptimizer();
  EXPECT_EQ(second->optimizer_state().step_count, 0);
  for (float m : second->optimizer_state().first_moment) ASSERT_EQ(m, 0.0f);
  for (float v : second->optimizer_state().second_moment) ASSERT_EQ(v, 0.0f);
}

// Counts the products of backward passes.
class CountingOps final : public PlainOps<float> {
 public:
  explicit CountingOps(int& count) : count_(count) {}

  void LinearBackwardWeight(int64_t m, int64_t n, int64_t k, const float* dy,
                            const float* x, float* dw,
                            bool accumulate) override {
    ++count_;
    PlainOps::LinearBackwardWeight(m, n, k, dy, x, dw, accumulate);
  }

 private:
  int& count_;
};

// Parameters and moments stay readable until before_write is called.
TEST(TrainerTest, SaysBeforeItWritesWhenBothPassesAreDone) {
  const GoldenCase golden = GoldenCases()[0];
  int products = 0, ignored = 0;
  const auto make = [&](int& count) {
    auto made = Trainer::CreateOn(MakeOptions(golden, 1),
                                  std::make_unique<CountingOps>(count));
    EXPECT_TRUE(made.ok()) << made.status();
    return WithGoldenParameters(golden, *std::move(made));
  };
  auto trainer = make(products);
  auto same = make(ignored);
  for (int step = 0; step < 2; ++step) {
    StepOn(*same, golden, step);
    const std::vector<float> before(trainer->parameters().begin(),
                                    trainer->parameters().end());
    const absl::Span<const float> moment =
        trainer->optimizer_state().first_moment;
    const std::vector<float> moment_before(moment.begin(), moment.end());
    int called = 0, products_before_write = 0;
    products = 0;
    ASSERT_TRUE(trainer->set_before_write([&] {
      ++called;
      products_before_write = products;
      EXPECT_TRUE(SameBits(trainer->parameters(), before));
      EXPECT_TRUE(SameBits(moment, moment_before));
    }));
    StepOn(*trainer, golden, step);
    EXPECT_EQ(called, 1);
    EXPECT_GT(products, 0);
    EXPECT_EQ(products_before_write, products);
    EXPECT_FALSE(SameBits(trainer->parameters(), before));
    EXPECT_TRUE(SameBits(trainer->parameters(), same->parameters()));
  }
}

TEST(TrainerTest, SgdIsParametersMinusTheRoundedProduct) {
  const GoldenCase golden = GoldenCases()[1];
  TrainerOptions options = MakeOptions(golden, 2);
  options.optimizer.kind = OptimizerKind::kSgd;
  options.optimizer.clip_norm = 0;
  options.schedule = {.peak = 0.25};
  auto trainer = Make(options);
  const std::vector<float> before = GoldenParameters(golden);
  std::copy(before.begin(), before.end(), trainer->parameters().begin());
  StepOn(*trainer, golden, 0);
  EXPECT_TRUE(trainer->optimizer_state().first_moment.empty());
  auto keeper = MakeGradientKeeper(golden);
  StepOn(*keeper, golden, 0);
  const absl::Span<const float> gradients =
      keeper->optimizer_state().first_moment;
  for (size_t i = 0; i < before.size(); ++i) {
    const volatile float product = 0.25f * gradients[i];
    ASSERT_EQ(trainer->parameters()[i], before[i] - product) << i;
  }
}

TEST(TrainerTest, EvaluationChangesNothingAndDoesNotDependOnTheBatchSize) {
  const GoldenCase golden = GoldenCases()[0];
  GoldenTokens tokens = MakeGoldenTokens(golden, 0);
  const GoldenTokens more = MakeGoldenTokens(golden, 1);
  tokens.inputs.insert(tokens.inputs.end(), more.inputs.begin(),
                       more.inputs.end());
  tokens.targets.insert(tokens.targets.end(), more.targets.begin(),
                        more.targets.end());
  std::vector<double> losses;
  for (int64_t batch_size : {1, 4, 9}) {
    TrainerOptions options = MakeOptions(golden, 1);
    options.batch_size = batch_size;
    auto trainer = Make(options);
    const std::vector<float> parameters = GoldenParameters(golden);
    std::copy(parameters.begin(), parameters.end(),
              trainer->parameters().begin());
    const auto loss = trainer->EvaluateLoss(tokens.inputs, tokens.targets);
    ASSERT_TRUE(loss.ok()) << loss.status();
    losses.push_back(*loss);
    EXPECT_TRUE(SameBits(trainer->parameters(), parameters));
    EXPECT_EQ(trainer->optimizer_state().step_count, 0);
  }
  EXPECT_NEAR(losses[0], losses[2], 1e-6 * losses[0]);
  EXPECT_NEAR(losses[1], losses[2], 1e-6 * losses[0]);
}

TEST(TrainerTest, NextTokenLogitsGiveTheLossOfTheTokenThatFollows) {
  const GoldenCase golden = GoldenCases()[1];
  auto trainer = MakeGolden(golden, 2);
  const GoldenTokens tokens = MakeGoldenTokens(golden, 0);
  const int64_t length = golden.sequence_length;
  const absl::Span<const int32_t> inputs =
      absl::MakeConstSpan(tokens.inputs).first(length);
  double sum = 0;
  for (int64_t t = 0; t < length; ++t) {
    const auto logits = trainer->NextTokenLogits(inputs.first(t + 1));
    ASSERT_TRUE(logits.ok()) << logits.status();
    double total = 0;
    for (float logit : *logits) total += std::exp(static_cast<double>(logit));
    sum += std::log(total) - (*logits)[tokens.targets[t]];
  }
  const auto loss = trainer->EvaluateLoss(
      inputs, absl::MakeConstSpan(tokens.targets).first(length));
  ASSERT_TRUE(loss.ok());
  EXPECT_NEAR(sum / static_cast<double>(length), *loss, 1e-5);
}

TEST(TrainerTest, RefusesWrongShapesAndTokensAndChangesNothing) {
  const GoldenCase golden = GoldenCases()[0];
  auto trainer = MakeGolden(golden);
  const std::vector<float> before(trainer->parameters().begin(),
                                  trainer->parameters().end());
  const GoldenTokens good = MakeGoldenTokens(golden, 0);
  const auto refused = [&](const std::function<void(GoldenTokens&)>& spoil) {
    GoldenTokens bad = good;
    spoil(bad);
    return trainer->Step(bad.inputs, bad.targets, 0).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& t) { t.inputs.pop_back(); }));
  EXPECT_TRUE(refused([](auto& t) { t.inputs = t.targets = {}; }));
  EXPECT_TRUE(refused([](auto& t) { t.inputs[5] = -1; }));
  EXPECT_TRUE(refused([](auto& t) { t.targets[5] = 61; }));
  EXPECT_TRUE(refused([](auto& t) {
    t.inputs.resize(t.inputs.size() * 2);
    t.targets.resize(t.targets.size() * 2);
  }));
  EXPECT_FALSE(trainer->NextTokenLogits({}).ok());
  EXPECT_FALSE(trainer->NextTokenLogits(good.inputs).ok());  // Three windows.
  EXPECT_TRUE(SameBits(trainer->parameters(), before));
}

TEST(TrainerTest, APoisonedParameterIsAnErrorAndNotAStep) {
  const GoldenCase golden = GoldenCases()[0];
  const GoldenTokens tokens = MakeGoldenTokens(golden, 0);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    // An element of each: q, k, gate and down projection, and a norm.
    for (const char* name : {"model.layers.0.self_attn.q_proj.weight",
                             "model.layers.1.self_attn.k_proj.weight",
                             "model.layers.0.mlp.gate_proj.weight",
                             "model.layers.1.mlp.down_proj.weight",
                             "model.layers.1.input_layernorm.weight"}) {
      auto trainer = MakeGolden(golden);
      trainer->parameters()[trainer->layout().Find(name)->offset] = bad;
      const std::vector<float> before(trainer->parameters().begin(),
                                      trainer->parameters().end());
      const auto loss = trainer->Step(tokens.inputs, tokens.targets, 0);
      EXPECT_EQ(loss.status().code(), absl::StatusCode::kInternal) << name;
      EXPECT_TRUE(SameBits(trainer->parameters(), before)) << name;
      EXPECT_EQ(trainer->optimizer_state().step_count, 0) << name;
    }
  }
}

TEST(TrainerTest, RefusesOptionsOutOfRange) {
  const std::function<void(TrainerOptions&)> spoils[] = {
      [](auto& o) { o.model.head_count = 5; },
      [](auto& o) { o.optimizer.beta1 = 1.0; },
      [](auto& o) { o.optimizer.clip_norm = -1; },
      [](auto& o) { o.schedule.peak = 0; },
      [](auto& o) { o.schedule.final_fraction = 2; },
      [](auto& o) { o.batch_size = 0; },
      [](auto& o) { o.sequence_length = 129; },
      [](auto& o) { o.thread_count = 0; },
  };
  for (const auto& spoil : spoils) {
    TrainerOptions options;
    spoil(options);
    EXPECT_EQ(Trainer::Create(options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace atl::engine
