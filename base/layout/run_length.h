// The length of a run (outer rounds, merged tokens, or whichever limit comes
// first) and the length of its learning-rate clock. Pure. Thread-safe.
//
//   H  inner steps a round         B, T  sequences a step, tokens a sequence;
//                                  external models: at most
//   K  contributions that a round is expected to have: the number that the
//      first round asks of `island_count_min` islands; async 1, because one
//      contribution makes a version
//
// The learning-rate clock has two forms. Without a token budget it counts
// rounds: v H at version v (fragment_schedule.h). With a budget it counts
// merged tokens, K B T a step. So the rate falls as the budget is spent,
// whatever the number of islands and of their steps. Both forms agree for a run
// whose rounds have K contributions of H steps.

#pragma once

#include <cstdint>

#include "atoll/v1/run.pb.h"

namespace atl {

// The largest token budget: 2^53 tokens.
inline constexpr int64_t kTokenBudgetMax = int64_t{1} << 53;

inline bool HasTokenBudget(const v1::ScheduleSpec& schedule) {
  return schedule.token_count() > 0;
}

// Returns how many of `ready_count` islands a round asks: `fraction` of them (0
// means all), rounded to nearest, at least `quorum` and at least 1.
int64_t SampleSize(int64_t ready_count, double fraction, int64_t quorum);

// B T: tokens of an island's inner step, >= 1. Saturates. In a run that weighs
// by samples B, by steps 1.
int64_t TokensAStep(const v1::RunSpec& spec);

// Tokens of `step_count` (>= 0) inner steps, of one island or several together.
// Saturates.
int64_t TokensOfSteps(const v1::RunSpec& spec, int64_t step_count);

// K B T: merged tokens in one clock step of a run with a budget. Saturates.
int64_t TokensAClockStep(const v1::RunSpec& spec);

// N: planned clock steps of the whole run; the lesser one if both rounds and a
// budget are given. Requires: round_count or token_count is given.
int64_t PlannedStepCount(const v1::RunSpec& spec);

}  // namespace atl
