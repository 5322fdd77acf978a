// The token weights of a round's contributions.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_WEIGHTS_H_
#define COORDINATOR_CORE_ROUNDS_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"

namespace atl::coordinator {

// Tokens that count for a contribution: what its island claims, at most what
// the plan lets it read: (planned steps, and the steps it may run ahead in an
// elastic run) x sequences a step x tokens a sequence. Saturates.
int64_t CountedTokens(const v1::RunSpec& spec, int64_t planned_step_count,
                      int64_t claimed_token_count);

// Steps that count for a contribution of `token_count` counted tokens: what its
// island claims, and no fewer than so many tokens take at the run's batch, so
// that nobody weighs more by claiming larger steps. At least 1.
int64_t CountedSteps(const v1::RunSpec& spec, int64_t token_count,
                     int64_t claimed_step_count);

// Weights of contributions with these counted tokens (each > 0, unless
// uniform): normalised in f64 over the set, then rounded to f32. Samples weigh
// as tokens do, for all sequences of a run have the same length. Only
// TOKENS_SQUARED_PER_STEP reads `step_counts` (each > 0): tokens * tokens /
// steps.
// Requires: not empty, of one length.
std::vector<float> NormalizedWeights(v1::Weighting weighting,
                                     const std::vector<int64_t>& token_counts,
                                     const std::vector<int64_t>& step_counts);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_WEIGHTS_H_
