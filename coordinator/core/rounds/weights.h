// The token weights of a round's contributions. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"

namespace atl::coordinator {

// Tokens that count for a contribution: the island's claim, limited to what the
// plan lets it read, (planned steps + max_ahead_steps in an elastic run) x
// sequences a step x tokens a sequence. Saturates.
int64_t CountedTokens(const v1::RunSpec& spec, int64_t planned_step_count,
                      int64_t claimed_token_count);

// Steps that count for a contribution of `token_count` counted tokens: the
// island's claim, but at least 1, and at least the steps of that many tokens at
// the run's batch size. So no island gains weight by claiming larger steps.
int64_t CountedSteps(const v1::RunSpec& spec, int64_t token_count,
                     int64_t claimed_step_count);

// Weights of contributions with these counted tokens (each > 0, unless
// uniform), normalised in f64, then rounded to f32. Samples weigh like tokens,
// because all sequences of a run are equally long. Only TOKENS_SQUARED_PER_STEP
// (tokens * tokens / steps) reads `step_counts` (each > 0).
//
// Requires: both vectors have the same length, at least 1.
std::vector<float> NormalizedWeights(v1::Weighting weighting,
                                     const std::vector<int64_t>& token_counts,
                                     const std::vector<int64_t>& step_counts);

}  // namespace atl::coordinator
