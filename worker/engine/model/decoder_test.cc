// The decoder's gradients: in f64 against central finite differences, and in
// f32 on the CPU against the f64 definition.

#include "worker/engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/cpu/cpu_ops.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine {
namespace {

struct Problem {
  ModelConfig config;
  TokenBatch batch;
  std::vector<int32_t> inputs, targets;
  std::vector<float> parameters;
};

class DecoderTest : public testing::Test {
 protected:
  DecoderTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  // Weights are normal with deviation 0.3; gains are near 1.
  Problem Draw(const ModelConfig& config, int64_t batch, int64_t length) {
    Problem problem;
    problem.config = config;
    std::uniform_int_distribution<int32_t> token(
        0, static_cast<int32_t>(config.vocab_size) - 1);
    for (int64_t i = 0; i < batch * length; ++i) {
      problem.inputs.push_back(token(random_));
      problem.targets.push_back(token(random_));
    }
    std::normal_distribution<float> normal(0.0f, 0.3f);
    for (const ParameterSpec& spec : MakeParameterLayout(config).parameters) {
      const float mean =
          spec.parameter_class == ParameterClass::kVector ? 1.0f : 0.0f;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        problem.parameters.push_back(mean + normal(random_));
      }
    }
    problem.batch = {.batch = batch, .sequence_length = length};
    return problem;
  }

  template <typename T>
  static std::unique_ptr<Decoder<T>> Make(const Problem& problem,
                                          BasicOps<T>& ops) {
    auto decoder =
        Decoder<T>::Create(problem.config, problem.batch.rows(), ops);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    return *std::move(decoder);
  }

  // Returns the loss. Writes its gradient unless `gradient` is null.
  template <typename T>
  static T Run(const Problem& problem, Decoder<T>& decoder,
               const std::vector<T>& parameters, std::vector<T>* gradient) {
    TokenBatch batch = problem.batch;
    batch.inputs = problem.inputs.data();
    batch.targets = problem.targets.data();
    T loss = 0;
    if (gradient == nullptr) {
      loss = decoder.Loss(parameters.data(), batch);
    } else {
      // Backward must overwrite old values.
      gradient->assign(parameters.size(), T(7));
      loss =
          decoder.ForwardBackward(parameters.data(), batch, gradient->data());
    }
    return loss + static_cast<T>(decoder.router_loss());
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

ModelConfig Tiny(bool tied) {
  return {.vocab_size = 11,
          .hidden_size = 16,
          .intermediate_size = 10,
          .layer_count = 2,
          .head_count = 4,
          .kv_head_count = tied ? 4 : 2,
          .sequence_length_max = 8,
          .tie_embeddings = tied};
}

ModelConfig TinyGpt2() {
  ModelConfig config = Tiny(true);
  config.architecture = Architecture::kGpt2;
  return config;
}

// Chooses `k` of three experts. With a capacity it drops some rows.
ModelConfig TinyMixture(int64_t k, double capacity_factor) {
  ModelConfig config = Tiny(false);
  config.architecture = Architecture::kMixtral;
  config.expert_count = 3;
  config.experts_per_token = k;
  config.router_loss_weight = 0.3;
  config.expert_capacity_factor = capacity_factor;
  return config;
}

TEST_F(DecoderTest, EveryGradientIsTheFiniteDifferenceOfTheLoss) {
  const std::pair<const char*, ModelConfig> cases[] = {
      {"tied", Tiny(true)},
      {"untied, grouped", Tiny(false)},
      {"gpt2", TinyGpt2()},
      {"two experts a token", TinyMixture(2, 0)},
      {"one expert a token, not for all", TinyMixture(1, 0.3)}};
  for (const auto& [name, config] : cases) {
    SCOPED_TRACE(name);
    const Problem problem = Draw(config, 2, config.tie_embeddings ? 8 : 5);
    std::vector<double> parameters(problem.parameters.begin(),
                                   problem.parameters.end());
    PlainOps<double> ops;
    std::vector<double> gradient;
    const auto decoder = Make<double>(problem, ops);
    Run(problem, *decoder, parameters, &gradient);
    const double h = 1e-5;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double at = parameters[i];
      const auto difference = [&](double step) {
        parameters[i] = at + step;
        const double above =
            Run<double>(problem, *decoder, parameters, nullptr);
        parameters[i] = at - step;
        const double below =
            Run<double>(problem, *decoder, parameters, nullptr);
        parameters[i] = at;
        return (above - below) / (2 * step);
      };
      const double bound = 1e-7 * (1 + std::abs(gradient[i]));
      double slope = difference(h);
      // Cancels the h^2 term (Richardson) where the loss bends strongly.
      if (std::abs(slope - gradient[i]) > bound) {
        slope = (4 * difference(h / 2) - slope) / 3;
      }
      ASSERT_NEAR(gradient[i], slope, bound)
          << "parameter " << i;
    }
  }
}

// Larger shapes: several tiles and chunks of logits, heads that are not a
// multiple of the vector width.
std::vector<std::pair<ModelConfig, std::pair<int64_t, int64_t>>> Shapes() {
  ModelConfig odd{.vocab_size = 53,
                  .hidden_size = 36,
                  .intermediate_size = 50,
                  .layer_count = 3,
                  .head_count = 6,
                  .kv_head_count = 3,
                  .sequence_length_max = 64,
                  .tie_embeddings = false};
  ModelConfig wide{.vocab_size = 9000,
                   .hidden_size = 32,
                   .intermediate_size = 64,
                   .layer_count = 1,
                   .head_count = 2,
                   .kv_head_count = 1,
                   .sequence_length_max = 130,
                   .tie_embeddings = true};
  ModelConfig gpt2 = odd;
  gpt2.architecture = Architecture::kGpt2;
  gpt2.kv_head_count = 6;
  gpt2.tie_embeddings = true;
  ModelConfig mixture = odd;
  mixture.architecture = Architecture::kMixtral;
  mixture.vocab_size = 54;
  mixture.expert_count = 5;
  mixture.experts_per_token = 2;
  mixture.router_loss_weight = 0.1;
  mixture.expert_capacity_factor = 0.5;
  return {
      {odd, {3, 49}}, {wide, {3, 130}}, {gpt2, {3, 50}}, {mixture, {3, 49}}};
}

TEST_F(DecoderTest, OnTheCpuItComputesWhatTheDefinitionDoes) {
  for (const auto& [config, shape] : Shapes()) {
    SCOPED_TRACE(config.vocab_size);
    const Problem problem = Draw(config, shape.first, shape.second);
    PlainOps<double> plain;
    std::vector<double> expected;
    const double loss =
        Run<double>(problem, *Make<double>(problem, plain),
                    std::vector<double>(problem.parameters.begin(),
                                        problem.parameters.end()),
                    &expected);
    // The f32 definition shows how much rounding alone changes a gradient.
    PlainOps<float> rounding;
    std::vector<float> rounded;
    Run<float>(problem, *Make<float>(problem, rounding), problem.parameters,
               &rounded);
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      const auto ops = MakeCpuOps(threads);
      std::vector<float> actual;
      EXPECT_NEAR(Run<float>(problem, *Make<float>(problem, *ops),
                             problem.parameters, &actual),
                  loss, 1e-5 * loss);
      if (threads == 1) first = actual;
      ASSERT_EQ(std::memcmp(actual.data(), first.data(),
                            actual.size() * sizeof(float)),
                0)
          << threads << " threads give other bits";
    }
    for (const ParameterSpec& spec : MakeParameterLayout(config).parameters) {
      double largest = 0, off = 0;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        const double e = expected[spec.offset + i];
        largest = std::max(largest, std::abs(e));
        off = std::max(off, std::abs(rounded[spec.offset + i] - e));
      }
      // Some parameters amplify rounding in any order of sums.
      const double bound = 1e-5 * largest + 4 * off;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        ASSERT_NEAR(first[spec.offset + i], expected[spec.offset + i], bound)
            << spec.name << " " << i;
      }
    }
  }
}

TEST_F(DecoderTest, LossDoesNotNeedTheGradientAndLogitsDoNotSeeLaterTokens) {
  Problem problem = Draw(Tiny(false), 1, 6);
  const auto ops = MakeCpuOps(2);
  std::vector<float> gradient;
  EXPECT_EQ(Run<float>(problem, *Make<float>(problem, *ops), problem.parameters,
                       &gradient),
            Run<float>(problem, *Make<float>(problem, *ops), problem.parameters,
                       nullptr));

  auto decoder = Decoder<float>::Create(problem.config, 6, *ops);
  ASSERT_TRUE(decoder.ok());
  auto logits = [&](int64_t length) {
    const float* at = (*decoder)->Logits(problem.parameters.data(),
                                         problem.inputs.data(), length, 3);
    return std::vector<float>(at, at + problem.config.vocab_size);
  };
  const std::vector<float> alone = logits(4), before_others = logits(6);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(alone[i], before_others[i], 1e-5 * (1 + std::abs(alone[i])));
  }
}

// An expert's capacity is per sequence of the model's length. Later tokens and
// other sequences must not change a row.
TEST_F(DecoderTest, WithACapacitySequencesAreAloneAndLaterTokensNotSeen) {
  const ModelConfig config = TinyMixture(2, 0.6);
  const Problem problem = Draw(config, 3, config.sequence_length_max);
  const std::vector<double> parameters(problem.parameters.begin(),
                                       problem.parameters.end());
  PlainOps<double> ops;
  const auto decoder = Make<double>(problem, ops);
  TokenBatch batch = problem.batch;
  batch.inputs = problem.inputs.data();
  batch.targets = problem.targets.data();
  const double together = decoder->Loss(parameters.data(), batch);
  double alone = 0;
  batch.batch = 1;
  for (int i = 0; i < 3; ++i) {
    alone += decoder->Loss(parameters.data(), batch) / 3;
    batch.inputs += batch.sequence_length;
    batch.targets += batch.sequence_length;
  }
  EXPECT_NEAR(together, alone, 1e-12);

  for (int64_t length = 1; length <= config.sequence_length_max; ++length) {
    const auto logits = [&](int64_t of) {
      const double* at = decoder->Logits(
          parameters.data(), problem.inputs.data(), of, length - 1);
      return std::vector<double>(at, at + config.vocab_size);
    };
    const std::vector<double> prefix = logits(length);
    const std::vector<double> whole = logits(config.sequence_length_max);
    for (size_t i = 0; i < prefix.size(); ++i) {
      EXPECT_NEAR(prefix[i], whole[i], 1e-12) << "after " << length;
    }
  }
}

}  // namespace
}  // namespace atl::engine
