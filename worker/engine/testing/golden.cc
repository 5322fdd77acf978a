#include "worker/engine/testing/golden.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/status/check.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"

namespace atl::engine {
namespace {

constexpr char kFolder[] = "worker/engine/testdata/golden_";

}  // namespace

std::vector<GoldenCase> GoldenCases() {
  return {{.name = "tied",
           .config = {.vocab_size = 61,
                      .hidden_size = 32,
                      .intermediate_size = 44,
                      .layer_count = 2,
                      .head_count = 4,
                      .kv_head_count = 4,
                      .sequence_length_max = 24,
                      .tie_embeddings = true},
           .batch_size = 3,
           .sequence_length = 24},
          {.name = "grouped",
           .config = {.vocab_size = 47,
                      .hidden_size = 48,
                      .intermediate_size = 40,
                      .layer_count = 2,
                      .head_count = 6,
                      .kv_head_count = 2,
                      .sequence_length_max = 32,
                      .tie_embeddings = false},
           .batch_size = 2,
           .sequence_length = 19},
          {.name = "gpt2",
           .config = {.architecture = Architecture::kGpt2,
                      .vocab_size = 53,
                      .hidden_size = 32,
                      .intermediate_size = 40,
                      .layer_count = 2,
                      .head_count = 4,
                      .kv_head_count = 4,
                      .sequence_length_max = 24,
                      .tie_embeddings = true},
           .batch_size = 3,
           .sequence_length = 21},
          {.name = "mixture",
           .config = {.architecture = Architecture::kMixtral,
                      .vocab_size = 43,
                      .hidden_size = 24,
                      .intermediate_size = 20,
                      .layer_count = 2,
                      .head_count = 4,
                      .kv_head_count = 2,
                      .sequence_length_max = 24,
                      .tie_embeddings = false,
                      .expert_count = 5,
                      .experts_per_token = 2,
                      .router_loss_weight = 0.05},
           .batch_size = 3,
           .sequence_length = 20}};
}

LearningRateSchedule GoldenSchedule() {
  return {.peak = 1e-2,
          .warmup_step_count = 5,
          .total_step_count = kGoldenSteps,
          .final_fraction = 0.1};
}

std::vector<double> GoldenUniform(uint64_t seed, int64_t count) {
  std::vector<double> numbers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t z = static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15u + seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z = z ^ (z >> 31);
    numbers[static_cast<size_t>(i)] = static_cast<double>(z >> 11) * 0x1.0p-53;
  }
  return numbers;
}

std::vector<float> GoldenParameters(const GoldenCase& golden) {
  const ParameterLayout layout = MakeParameterLayout(golden.config);
  const std::vector<double> u = GoldenUniform(1, layout.element_count);
  std::vector<float> parameters;
  parameters.reserve(u.size());
  for (const ParameterSpec& spec : layout.parameters) {
    const bool gain = spec.parameter_class == ParameterClass::kVector;
    for (int64_t i = 0; i < spec.element_count; ++i) {
      const double value = u[parameters.size()];
      parameters.push_back(
          static_cast<float>(gain ? 0.5 + value : 0.4 * (value - 0.5)));
    }
  }
  return parameters;
}

GoldenTokens MakeGoldenTokens(const GoldenCase& golden, int step) {
  const int64_t window = golden.sequence_length + 1;
  const int64_t a_step = golden.batch_size * window;
  const std::vector<double> u = GoldenUniform(2, kGoldenSteps * a_step);
  GoldenTokens tokens;
  for (int64_t i = 0; i < a_step; ++i) {
    const int32_t token =
        static_cast<int32_t>(u[static_cast<size_t>(step * a_step + i)] *
                             static_cast<double>(golden.config.vocab_size));
    if (i % window < golden.sequence_length) tokens.inputs.push_back(token);
    if (i % window > 0) tokens.targets.push_back(token);
  }
  return tokens;
}

GoldenResults ReadGoldenResults(const GoldenCase& golden) {
  GoldenResults results;
  std::ifstream text(kFolder + golden.name + ".txt");
  text >> results.loss >> results.gradient_norm;
  if (golden.config.is_mixture()) text >> results.router_loss;
  for (double loss; text >> loss;) results.step_losses.push_back(loss);
  CHECK_EQ(results.step_losses.size(), static_cast<size_t>(kGoldenSteps));
  const size_t count =
      static_cast<size_t>(MakeParameterLayout(golden.config).element_count);
  results.gradient.resize(count);
  results.final_parameters.resize(count);
  std::ifstream binary(kFolder + golden.name + ".f32", std::ios::binary);
  for (auto* values : {&results.gradient, &results.final_parameters}) {
    binary.read(reinterpret_cast<char*>(values->data()),
                static_cast<std::streamsize>(count * sizeof(float)));
  }
  CHECK(binary.good()) << "golden_" << golden.name << ".f32 is too short";
  return results;
}

}  // namespace atl::engine
