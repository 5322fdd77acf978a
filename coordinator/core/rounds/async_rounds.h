// The rounds of an async run (arXiv 2401.09135). A fragment's OPEN stands until
// a contribution is received. That one is sealed alone, whichever version it
// was made from. The COMMIT of the next version brings the next OPEN.
//
// Pure functions of the durable state and the reports; of time, only for islands
// that sit out (sit_out.h; `due` is the newest Tick's time).
// Thread-safe. Requires: IsAsync() of the run.
//
// An island's work is planned when its previous contribution is decided: DyLU's
// steps, the learning rate's clock, the data. The plan stands
// (FragmentState::standing_plans) however often other islands commit, until what
// it asks for can no longer be merged (IsOverdue, measured_speeds.h). If a ready
// island that does not sit out has no plan in an open round, the round is
// reopened at once.

#pragma once

#include <vector>

#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// OPENs of the idle fragments that are not at their end. They name every ready
// island that does not sit out, and restarting islands that have a plan.
Decision DecideAsyncOpen(const RunState& state, const Observations& observed,
                         absl::Time due);

// SEAL of the received contribution with the oldest anchor version, the first
// by (slot, seq). Without one: an ABORT if an island that may be asked has no
// plan, or if one with a plan was refused and sits out.
//
// The contribution of an island that joined with a token waits until it is due
// (DueTimes, measured_speeds.h): every version is one contribution, so an
// island that does not train would otherwise make nearly all of them. Sets
// timers.quorum_time to when the first of those is due; else InfiniteFuture.
Decision DecideAsyncSeal(const RunState& state, const Observations& observed,
                         int32_t fragment, absl::Time due,
                         RoundTimers& timers);

// Outcomes of contributions to `fragment` that no version can take any longer:
// REJECTED, STALE, or CANCELLED at the end of the run.
std::vector<v1::ContributionOutcome> SettleAsync(const RunState& state,
                                                 const Observations& observed,
                                                 int32_t fragment);

}  // namespace atl::coordinator
