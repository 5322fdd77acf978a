#include "base/layout/run_length.h"

#include <algorithm>
#include <cmath>

#include "base/layout/run_timing.h"

namespace atl {
namespace {

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return INT64_MAX;
  return product;
}

}  // namespace

int64_t SampleSize(int64_t ready_count, double fraction, int64_t quorum) {
  if (fraction <= 0) fraction = 1;
  const int64_t asked =
      std::llround(fraction * static_cast<double>(ready_count));
  return std::min(ready_count,
                  std::max({asked, quorum, static_cast<int64_t>(1)}));
}

int64_t TokensAStep(const v1::RunSpec& spec) {
  if (spec.weight_unit() == v1::WEIGHT_UNIT_STEPS) return 1;
  const int64_t sample = spec.weight_unit() == v1::WEIGHT_UNIT_SAMPLES
                             ? 1
                             : spec.model().sequence_length();
  return std::max<int64_t>(
      1, SaturatingMultiply(spec.inner().batch_size(), sample));
}

int64_t TokensOfSteps(const v1::RunSpec& spec, int64_t step_count) {
  return SaturatingMultiply(step_count, TokensAStep(spec));
}

int64_t TokensAClockStep(const v1::RunSpec& spec) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  if (IsAsync(schedule)) return TokensAStep(spec);
  const int64_t contribution_count =
      SampleSize(std::max(schedule.island_count_min(), 1),
                 schedule.sample_fraction(), schedule.min_quorum());
  return TokensOfSteps(spec, contribution_count);
}

int64_t PlannedStepCount(const v1::RunSpec& spec) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  int64_t step_count = INT64_MAX;
  if (schedule.round_count() > 0) {
    step_count = SaturatingMultiply(schedule.round_count(),
                                    schedule.inner_step_count());
  }
  if (HasTokenBudget(schedule)) {
    const int64_t tokens_a_step = TokensAClockStep(spec);
    step_count =
        std::min(step_count, (schedule.token_count() - 1) / tokens_a_step + 1);
  }
  return step_count;
}

}  // namespace atl
