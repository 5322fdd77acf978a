// The rounds of an async run (arXiv 2401.09135): a fragment's OPEN stands
// until a contribution is received; that one is sealed alone, whichever version
// it was made from, and the COMMIT of the next version brings the next OPEN.
//
// Pure functions of the durable state and the reports; none depends on time.
// Thread-safe. For runs of which IsAsync() holds.
//
// What an island does is decided when its contribution before was, and stands
// (FragmentState::standing_plans) whatever others commit meanwhile: DyLU's
// steps, the clock of the learning rate, the data. An island that has no such
// plan while the round is open has it opened again, at once.

#ifndef COORDINATOR_CORE_ROUNDS_ASYNC_ROUNDS_H_
#define COORDINATOR_CORE_ROUNDS_ASYNC_ROUNDS_H_

#include <vector>

#include "coordinator/core/state/decision.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// OPENs of the idle fragments that have not reached the last version, for
// every ready island, and for those that are restarting and have a plan.
Decision DecideAsyncOpen(const RunState& state, const Observations& observed);

// SEAL of the one received contribution that was made from the oldest version,
// the first by (slot, seq) if there are several; or else an ABORT that lets a
// ready island in that has no plan yet.
Decision DecideAsyncSeal(const RunState& state, const Observations& observed,
                         int32_t fragment);

// Outcomes of contributions to `fragment` that no version can take any more:
// refused, STALE, or what a run that is over leaves.
std::vector<v1::ContributionOutcome> SettleAsync(const RunState& state,
                                                 const Observations& observed,
                                                 int32_t fragment);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_ASYNC_ROUNDS_H_
