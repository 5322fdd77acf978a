// The golden cases of make_golden.py: the inputs, made anew from the counter,
// and the results, read from the files.
//
// For tests.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/engine/model/model_config.h"
#include "worker/engine/optimizer/learning_rate_schedule.h"

namespace atl::engine {

struct GoldenCase {
  std::string name;
  ModelConfig config;
  int64_t batch_size = 0;
  int64_t sequence_length = 0;
};

inline constexpr int kGoldenSteps = 20;

// The cases: Llama "tied" and "grouped" (untied, 6 query and 2 key/value heads,
// sequences shorter than the longest); "gpt2"; "mixture", two of five experts a
// token.
std::vector<GoldenCase> GoldenCases();

// The schedule of the 20 steps.
LearningRateSchedule GoldenSchedule();

// `count` numbers in [0, 1): SplitMix64 of seed + index.
std::vector<double> GoldenUniform(uint64_t seed, int64_t count);

// The first parameters, flat.
std::vector<float> GoldenParameters(const GoldenCase& golden);

// Inputs and targets [B, T] of a step.
struct GoldenTokens {
  std::vector<int32_t> inputs, targets;
};
GoldenTokens MakeGoldenTokens(const GoldenCase& golden, int step);

// PyTorch's results. `loss`, the norm and `gradient` are the first step's.
struct GoldenResults {
  double loss = 0;
  double gradient_norm = 0;
  double router_loss = 0;  // Mixtures only.
  std::vector<double> step_losses;
  std::vector<float> gradient;
  std::vector<float> final_parameters;  // After all steps.
};
GoldenResults ReadGoldenResults(const GoldenCase& golden);

}  // namespace atl::engine
