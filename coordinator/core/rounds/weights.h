// The token weights of a round's contributions. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The most steps that a contribution of `slot` may claim: the planned ones. In
// an elastic run max_ahead_steps more, unless the island joined with a token.
// Saturates.
int64_t MostSteps(const RunState& state, int32_t slot,
                  int64_t planned_step_count);

// Steps that a round's contributions get weight for: the planned ones, and of
// the steps that an island claims beyond them at most as many as the lower
// median of all contributions' claims. Such steps are an island's word alone.
//
// Requires: the vectors have the same length, and values of at most 2^53.
std::vector<int64_t> CreditSteps(const std::vector<int64_t>& planned,
                                 const std::vector<int64_t>& claimed);

// Tokens that count for a contribution: the island's claim, at most those of
// `step_count_max` steps. Saturates.
int64_t CountedTokens(const v1::RunSpec& spec, int64_t step_count_max,
                      int64_t claimed_token_count);

// Steps that count for a contribution of `token_count` counted tokens: the
// island's claim, but at least 1, and at least the steps of that many tokens at
// the run's batch size. So no island gains weight by claiming larger steps.
int64_t CountedSteps(const v1::RunSpec& spec, int64_t token_count,
                     int64_t claimed_step_count);

// The islands of one join token and the largest share, in (0, 1), of a merge's
// weight that they have together. An empty group has no limit.
struct WeightCap {
  std::string group;
  double share_max = 0;
};

// The limits of the islands with these slots, as their members' records have
// them; empty: none has one.
std::vector<WeightCap> WeightCaps(const RunState& state,
                                  const std::vector<int32_t>& slots);

// Scales the weights so that no group exceeds its share. Proportions within a
// group, and among all contributions that no limit binds, stay the same. The
// weights then sum to 1, unless every contribution has a limit and the limits
// sum to less. The missing weight then counts as "no change" in the merge.
// Returns the sum, up to rounding, by which the weights must be divided.
//
// Requires: weights are positive, and `caps` has as many elements.
double CapShares(const std::vector<WeightCap>& caps,
                 std::vector<double>& weights);

// Weights of contributions with these counted tokens (each > 0, unless
// uniform), normalised in f64, then rounded to f32. Samples weigh like tokens,
// because all sequences of a run are equally long. Only TOKENS_SQUARED_PER_STEP
// (tokens * tokens / steps) reads `step_counts` (each > 0).
//
// `caps` limits what islands weigh together: see CapShares. Empty: no limit.
//
// Requires: the vectors have the same length, at least 1.
std::vector<float> NormalizedWeights(v1::Weighting weighting,
                                     const std::vector<int64_t>& token_counts,
                                     const std::vector<int64_t>& step_counts,
                                     const std::vector<WeightCap>& caps = {});

}  // namespace atl::coordinator
