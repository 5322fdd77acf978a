#include "worker/engine/optimizer/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>

namespace atl::engine {
namespace {

constexpr double kPi = 3.14159265358979323846;

double WarmupFactor(int64_t step, int64_t warmup_step_count) {
  if (warmup_step_count <= 0) return 1.0;
  return std::min(1.0, static_cast<double>(step + 1) /
                           static_cast<double>(warmup_step_count));
}

}  // namespace

double LearningRateAt(const LearningRateSchedule& schedule, int64_t step) {
  const double rate =
      schedule.peak * WarmupFactor(step, schedule.warmup_step_count);
  if (schedule.total_step_count <= 0) return rate;
  const int64_t cosine_steps = std::max<int64_t>(
      1, schedule.total_step_count - schedule.warmup_step_count);
  const int64_t done =
      std::clamp<int64_t>(step - schedule.warmup_step_count, 0, cosine_steps);
  const double cosine = std::cos(kPi * static_cast<double>(done) /
                                 static_cast<double>(cosine_steps));
  const double floor = schedule.final_fraction;
  return rate * (floor + (1.0 - floor) * 0.5 * (1.0 + cosine));
}

double RestartWarmupFactor(int64_t steps_since_restart,
                           int64_t warmup_step_count) {
  return WarmupFactor(steps_since_restart, warmup_step_count);
}

}  // namespace atl::engine
