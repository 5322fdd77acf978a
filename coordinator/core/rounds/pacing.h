// How many inner steps an island takes in a round.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_PACING_H_
#define COORDINATOR_CORE_ROUNDS_PACING_H_

#include <cstdint>
#include <vector>

namespace atl::coordinator {

// Steps of each island for a round of `inner_step_count` (H) steps that all of
// them end together: v_w / v_max * H to the nearest, 1 at least; v_w is the
// island's speed in tokens a second and v_max the largest. An island whose
// speed is not known (<= 0) takes H. To the nearest, so that islands about as
// fast take as many: the rest of a step is waited for, by whoever is early.
std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count);

// The same where nobody waits: max(1, floor(v_w / v_max * H)) (DyLU, arXiv
// 2401.09135, section 4).
std::vector<int64_t> DyluSteps(const std::vector<double>& speeds,
                               int64_t inner_step_count);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_PACING_H_
