// How many inner steps an island takes in a round. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

namespace atl::coordinator {

// Steps of each island in a round of `inner_step_count` (H) steps that all
// islands end together: v_w / v_max * H to the nearest, at least 1. v_w is the
// island's speed in tokens a second and v_max the largest. An island of unknown
// speed (<= 0) takes H. Rounding to the nearest gives islands of similar speed
// the same count; the fastest waits for at most half a step of another.
std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count);

// The same for rounds where nobody waits: max(1, floor(v_w / v_max * H)) (DyLU,
// arXiv 2401.09135, section 4).
std::vector<int64_t> DyluSteps(const std::vector<double>& speeds,
                               int64_t inner_step_count);

}  // namespace atl::coordinator
