// Speeds of islands, and the steps that a plan therefore asks of each.
//
// An island is measured when all shards have its contribution:
//
//   speed = steps that count / (now - the time its plan was made)
//
// in inner steps a second. Steps that count are those it claims, at most the
// planned ones. The exchange is part of the time, because a plan asks for the
// steps that an island can deliver. An island's speed is the median of its
// newest kSpeedsKept measurements, so one long pause does not change it. An
// island's own claim about its speed can lower its own plan and nothing else.
//
// A claim is of training alone. In a run in rounds an island pushes before it
// trains again, so it is asked for the steps that it can do in the round's time,
// H / v_ref, less its pushes, as it reports them. Otherwise an island whose
// pushes always come too late would never be measured.
//
// Medians here are lower medians: of an even count the lower of the two values
// in the middle. So less than half of the islands, or one of two, cannot raise
// the median above all others.
//
// Measurements are volatile. Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// Measurements that an island's speed is the median of.
inline constexpr size_t kSpeedsKept = 5;

// True if the island in `slot` has not delivered its plan of an async run, and
// no version can take what it began when the plan was made. Other islands are
// too fast for its step count: it would give up round after round, and nothing
// would ever be measured. So NoteReceived takes its plan as a measurement, as if
// all its steps were done now, and the next OPEN makes it anew (async_rounds.h).
bool IsOverdue(const RunState& state, const Observations& observed,
               int32_t fragment, int32_t slot);

// Notes the plans of `open`, which is recorded at `now`. The next attempt at a
// round, and the next version of an async run, keep the times of the plans
// whose contributions are not decided. Requires: `state` is before the OPEN.
void NotePlans(const RunState& state, const v1::OpenRound& open, absl::Time now,
               Observations& observed);

struct ReceivedNote {
  bool has_measured = false;  // Speeds of islands have changed.
  // A plan is overdue and was made just now: ask again later.
  bool must_repeat = false;
};

// Measures the islands whose contributions to `fragment` have come since the
// last call, and the overdue ones.
ReceivedNote NoteReceived(const RunState& state, int32_t fragment,
                          absl::Time now, Observations& observed);

// Inner steps a second; 0 before the first measurement.
double MeasuredSpeed(const ObservedMember& member);

// v_w / v_ref of each of `slots`, for slot_plans.h. v_w is the measured speed;
// before the first measurement the lesser of the island's claim and the median
// of the measured ones. v_ref is the median of all v_w. A claim below its v_w
// lowers an island's own share, and so do its pushes in a round of
// `inner_step_count` steps (H). 1 if nothing is known.
std::vector<double> RelativeSpeeds(const RunState& state,
                                   const Observations& observed,
                                   const std::vector<int32_t>& slots,
                                   int64_t inner_step_count);

// The times at which a round's contributions are due: an island of speed v_ref
// has then done the largest of the round's plans. Neither a claim nor a push of
// an untrained model makes them earlier. Requires: outlived by `observed`.
class DueTimes {
 public:
  // For `fragment`, whose round asks `slots`.
  DueTimes(const RunState& state, const Observations& observed,
           int32_t fragment, const std::vector<int32_t>& slots);

  // InfinitePast if no speed is known, or for a plan from before the
  // coordinator's start.
  absl::Time Find(int32_t slot) const;

 private:
  const AskedSlots& asked_;
  absl::Duration round_time_;  // After a plan is made.
};

}  // namespace atl::coordinator
