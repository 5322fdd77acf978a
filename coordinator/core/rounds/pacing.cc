#include "coordinator/core/rounds/pacing.h"

#include <algorithm>
#include <cmath>

namespace atl::coordinator {
namespace {

// round(v_w / v_max * H), in [1, H].
template <typename Round>
std::vector<int64_t> StepsBySpeed(const std::vector<double>& speeds,
                                  int64_t inner_step_count, Round round) {
  double fastest = 0;
  for (double speed : speeds) fastest = std::max(fastest, speed);
  std::vector<int64_t> steps;
  steps.reserve(speeds.size());
  for (double speed : speeds) {
    if (!(speed > 0)) {
      steps.push_back(inner_step_count);
      continue;
    }
    const double share =
        speed / fastest * static_cast<double>(inner_step_count);
    steps.push_back(std::clamp<int64_t>(static_cast<int64_t>(round(share)), 1,
                                        inner_step_count));
  }
  return steps;
}

}  // namespace

std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count) {
  return StepsBySpeed(speeds, inner_step_count,
                      [](double share) { return std::round(share); });
}

std::vector<int64_t> DyluSteps(const std::vector<double>& speeds,
                               int64_t inner_step_count) {
  return StepsBySpeed(speeds, inner_step_count,
                      [](double share) { return std::floor(share); });
}

}  // namespace atl::coordinator
