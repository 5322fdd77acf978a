// How many inner steps an island takes in a round.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_PACING_H_
#define COORDINATOR_CORE_PACING_H_

#include <cstdint>
#include <vector>

namespace atl::coordinator {

// Steps of each island for a round of `inner_step_count` (H) steps, elastic:
// max(1, floor(v_w / v_max * H)), v_w the island's speed in tokens a second and
// v_max the largest (DyLU, arXiv 2401.09135, section 4). An island whose speed
// is not known (<= 0) takes H.
std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_PACING_H_
