// Bounds the contributions of enrolled islands. A contribution is judged before
// SEAL by its norm over all shards, so the shard count does not matter.
//   n    norm of the contribution, over all elements of the fragment
//   s    its counted steps
//   f    OuterSpec.enrolled_norm_factor
//   m    lower median of n / s over the fragment's newest 64 merged contributions
//   S    lower median of their s
//
// Bound: n <= f m max(s, S). Until kStepNormsMin were merged, or while m is 0:
// n is at most the norm of the fragment's parameters at version 0.
//
// The norm of steps in one direction grows with s, that of a random walk with
// the root of s, and what blended parameters already lack does not depend on s.
// So an honest island with few steps may have an n / s far above m. It has the
// bound of S steps, and a hostile one gains nothing: it could claim S steps.
//
// Pure: depends on the durable state alone. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The factor of runs whose creator sets none (CreateRun). The largest that an
// honest contribution needed was 6.2, in a blended stream during the warm-up;
// 2.3 in the quality benchmark (tests/benchmarks/results/quality/norms.md).
inline constexpr double kEnrolledNormFactorDefault = 8;
// Merged contributions of a fragment from which its median counts.
inline constexpr size_t kStepNormsMin = 8;

// Steps that count for the bound: the claim, at least 1, and at most MostSteps
// (weights.h) of the open round's plan. Without a plan (async, or between two
// attempts) the run's H counts as planned.
int64_t CountBoundedSteps(const RunState& state, int32_t fragment, int32_t slot,
                          int64_t claimed_step_count);

struct NormBound {
  double value = 0;  // 0: none.
  std::string how;   // How it was made, for people.
};

// The bound on a contribution to `fragment` with so many counted steps.
NormBound FindNormBound(const RunState& state, int32_t fragment,
                        int64_t counted_step_count);

// True if the bound refuses contributions of the island in `slot`: it joined
// with a token. The operator's own islands may exceed the bound.
bool IsBounded(const RunState& state, int32_t slot);

}  // namespace atl::coordinator
