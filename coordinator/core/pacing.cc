#include "coordinator/core/pacing.h"

#include <algorithm>
#include <cmath>

namespace atl::coordinator {

std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count) {
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
    steps.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::floor(share)),
                                        1, inner_step_count));
  }
  return steps;
}

}  // namespace atl::coordinator
