#include "coordinator/core/weights.h"

#include <algorithm>

#include "base/status/check.h"

namespace atl::coordinator {
namespace {

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return INT64_MAX;
  return product;
}

}  // namespace

int64_t CountedTokens(const v1::RunSpec& spec, int64_t planned_step_count,
                      int64_t claimed_token_count) {
  int64_t steps = planned_step_count;
  if (spec.schedule().timing() == v1::TIMING_ELASTIC &&
      __builtin_add_overflow(steps, spec.schedule().max_ahead_steps(),
                             &steps)) {
    steps = INT64_MAX;
  }
  const int64_t planned =
      SaturatingMultiply(SaturatingMultiply(steps, spec.inner().batch_size()),
                         spec.model().sequence_length());
  return std::min(claimed_token_count, planned);
}

std::vector<float> NormalizedWeights(v1::Weighting weighting,
                                     const std::vector<int64_t>& token_counts) {
  CHECK(!token_counts.empty());
  std::vector<double> raw;
  raw.reserve(token_counts.size());
  double sum = 0;
  for (int64_t count : token_counts) {
    raw.push_back(
        weighting == v1::WEIGHTING_UNIFORM ? 1.0 : static_cast<double>(count));
    sum += raw.back();
  }
  CHECK_GT(sum, 0);
  std::vector<float> weights;
  weights.reserve(raw.size());
  for (double weight : raw) weights.push_back(static_cast<float>(weight / sum));
  return weights;
}

}  // namespace atl::coordinator
