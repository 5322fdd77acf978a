// How long a run is: so many outer rounds, so many merged tokens, or whichever
// of both is reached first; and how far its clock of steps goes.
//
// Pure. Thread-safe.
//
//   H  inner steps a round         B, T  sequences a step, tokens a sequence
//   K  contributions that a round is expected to have: those that the first
//      one asks for of `island_count_min` islands; async 1, for there a version
//      is one contribution
//
// The clock is that of the learning rate. Without a budget of tokens it counts
// rounds: v H at version v (fragment_schedule.h). With one it counts what was
// merged, K B T tokens a step, so that the rate falls as the budget is spent,
// however many islands there are and however many steps each of them does. Both
// are the same for a run whose rounds have K contributions of H steps.

#ifndef BASE_LAYOUT_RUN_LENGTH_H_
#define BASE_LAYOUT_RUN_LENGTH_H_

#include <cstdint>

#include "atoll/v1/run.pb.h"

namespace atl {

// The most that a budget may be: 2^53 tokens.
inline constexpr int64_t kTokenBudgetMax = int64_t{1} << 53;

inline bool HasTokenBudget(const v1::ScheduleSpec& schedule) {
  return schedule.token_count() > 0;
}

// Of `ready_count` islands, those that a round asks for: `fraction` of them (0
// means all), to the nearest, but at least `quorum` and 1.
int64_t SampleSize(int64_t ready_count, double fraction, int64_t quorum);

// B T: tokens of an island's inner step, >= 1. Saturates.
int64_t TokensAStep(const v1::RunSpec& spec);

// Tokens of so many inner steps (>= 0), of one island or of several together.
// Saturates.
int64_t TokensOfSteps(const v1::RunSpec& spec, int64_t step_count);

// K B T: merged tokens that a budget's clock counts as one step. Saturates.
int64_t TokensAClockStep(const v1::RunSpec& spec);

// N: steps of the clock in all, as planned. With rounds and a budget the least.
// Requires: round_count or token_count is given.
int64_t PlannedStepCount(const v1::RunSpec& spec);

}  // namespace atl

#endif  // BASE_LAYOUT_RUN_LENGTH_H_
