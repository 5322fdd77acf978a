// The decisions of a round that is open or sealed: SEAL, COMMIT, ABORT, and the
// outcome of every contribution.
//
// Pure functions of the durable state, the reports and the time; each returns
// what to record and why. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_ROUNDS_H_
#define COORDINATOR_CORE_ROUNDS_ROUNDS_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/state/decision.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// SEAL of an open round, or an ABORT that lets other islands in, or an ABORT
// and a pause if refusals leave too few. Sets the timers of the round.
Decision DecideSeal(const RunState& state, const Observations& observed,
                    int32_t fragment, absl::Time now, RoundTimers& timers);

// What a SEAL of an open round will hold as far as can be known now: the slots
// that are received or awaited, in order, with the weights that they have if
// all claim the tokens that were planned.
std::vector<v1::LiveMergeSlot> ExpectedSeal(const RunState& state,
                                            const Observations& observed,
                                            int32_t fragment);

// When DecideSeal has to be asked again at the latest without news.
absl::Time SealTimer(const RunState& state, int32_t fragment,
                     const RoundTimers& timers);

// COMMIT of a sealed round, or an ABORT and a pause if a merge is not finite.
Decision DecideCommit(const RunState& state, const Observations& observed,
                      int32_t fragment);

// Outcomes of contributions that no round of `fragment` can take any more.
std::vector<v1::ContributionOutcome> SettleOld(const RunState& state,
                                               const Observations& observed,
                                               int32_t fragment);

// Outcomes of everything undecided when a run is cancelled.
std::vector<v1::ContributionOutcome> SettleCancelled(
    const RunState& state, const Observations& observed, int32_t fragment);

// SEAL of the open round of `fragment` with `sealed`, in the order of (slot,
// seq): their weights, and the tokens that count, by the OPEN's plans.
storage::v1::Record MakeSeal(
    const RunState& state, int32_t fragment,
    const std::vector<const SeenContribution*>& sealed);

// The record that ends the round under way with an ABORT.
storage::v1::Record MakeAbort(const RunState& state, int32_t fragment,
                              const std::string& reason,
                              std::vector<v1::ContributionOutcome> outcomes);

// An outcome; `reason` only for REJECTED and DROPPED.
v1::ContributionOutcome MakeOutcome(const v1::ContributionKey& key,
                                    v1::Outcome outcome,
                                    const std::string& reason = "");

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_ROUNDS_H_
