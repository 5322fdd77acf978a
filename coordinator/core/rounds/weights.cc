#include "coordinator/core/rounds/weights.h"

#include <algorithm>

#include "base/layout/run_length.h"
#include "base/status/check.h"

namespace atl::coordinator {
int64_t CountedTokens(const v1::RunSpec& spec, int64_t planned_step_count,
                      int64_t claimed_token_count) {
  int64_t steps = planned_step_count;
  if (spec.schedule().timing() == v1::TIMING_ELASTIC &&
      __builtin_add_overflow(steps, spec.schedule().max_ahead_steps(),
                             &steps)) {
    steps = INT64_MAX;
  }
  return std::min(claimed_token_count, TokensOfSteps(spec, steps));
}

int64_t CountedSteps(const v1::RunSpec& spec, int64_t token_count,
                     int64_t claimed_step_count) {
  const int64_t tokens_a_step = TokensAStep(spec);
  const int64_t least =
      token_count / tokens_a_step + (token_count % tokens_a_step != 0 ? 1 : 0);
  return std::max<int64_t>({1, least, claimed_step_count});
}

std::vector<float> NormalizedWeights(v1::Weighting weighting,
                                     const std::vector<int64_t>& token_counts,
                                     const std::vector<int64_t>& step_counts) {
  CHECK(!token_counts.empty());
  CHECK_EQ(token_counts.size(), step_counts.size());
  std::vector<double> raw;
  raw.reserve(token_counts.size());
  double sum = 0;
  for (size_t i = 0; i < token_counts.size(); ++i) {
    const auto tokens = static_cast<double>(token_counts[i]);
    switch (weighting) {
      case v1::WEIGHTING_UNIFORM:
        raw.push_back(1.0);
        break;
      case v1::WEIGHTING_TOKENS_SQUARED_PER_STEP:
        raw.push_back(tokens * tokens / static_cast<double>(step_counts[i]));
        break;
      default:
        raw.push_back(tokens);
    }
    sum += raw.back();
  }
  CHECK_GT(sum, 0);
  std::vector<float> weights;
  weights.reserve(raw.size());
  for (double weight : raw) weights.push_back(static_cast<float>(weight / sum));
  return weights;
}

}  // namespace atl::coordinator
