#include "coordinator/core/rounds/run_end.h"

#include "absl/strings/str_cat.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/run_length.h"
#include "base/layout/run_timing.h"

namespace atl::coordinator {
namespace {

bool HasSpentItsTokens(const RunState& state, int32_t fragment) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  if (!HasTokenBudget(schedule)) return false;
  const FragmentState& at = state.fragments()[fragment];
  if (IsAsync(schedule) || IsStreaming(schedule)) {
    return at.token_count >= schedule.token_count();
  }
  // Fragments that open together end together.
  for (const FragmentState& other : state.fragments()) {
    if (other.newest.version() != at.newest.version()) return false;
  }
  return state.merged_token_count() >= schedule.token_count();
}

bool HasHadItsRounds(const RunState& state, int32_t fragment) {
  const int64_t round_count = state.spec().schedule().round_count();
  return round_count > 0 &&
         state.fragments()[fragment].newest.version() >= round_count;
}

}  // namespace

bool IsAtEnd(const RunState& state, int32_t fragment) {
  return HasHadItsRounds(state, fragment) || HasSpentItsTokens(state, fragment);
}

std::string EndReason(const RunState& state) {
  for (int32_t f = 0; f < state.fragments().size(); ++f) {
    if (HasHadItsRounds(state, f)) continue;
    return absl::StrCat("its budget of ", state.spec().schedule().token_count(),
                        " tokens is reached: ", state.merged_token_count(),
                        " are merged");
  }
  return "every fragment has reached its last round";
}

int64_t FindStartStep(const RunState& state, int32_t fragment) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  const FragmentState& at = state.fragments()[fragment];
  if (HasTokenBudget(schedule)) {
    return at.token_count / TokensAClockStep(state.spec());
  }
  const int64_t version = at.newest.version();
  if (IsAsync(schedule)) return version * schedule.inner_step_count();
  return StartStep(schedule, static_cast<int32_t>(state.fragments().size()),
                   fragment, version);
}

}  // namespace atl::coordinator
