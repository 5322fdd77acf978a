// Decides on rounds that are open or sealed: SEAL, COMMIT, ABORT, and the
// outcome of every contribution.
//
// Pure functions of the durable state, the reports and the time. Each returns
// records and a reason. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// SEAL of an open round; an ABORT that lets other islands in, or because refusals
// leave too few contributions; a strict run then pauses. Sets the timers of the round.
// New timers begin at `now`. Those that end by `due`, at most `now`, are over.
// `reads_speeds`: as QuorumCount.reads_speeds.
Decision DecideSeal(const RunState& state, const Observations& observed,
                    int32_t fragment, absl::Time now, absl::Time due,
                    RoundTimers& timers, bool* reads_speeds = nullptr);

// A forecast of an open round's SEAL: the slots that are received or awaited,
// in order. The weights assume that each island claims its planned tokens.
std::vector<v1::LiveMergeSlot> ExpectedSeal(const RunState& state,
                                            const Observations& observed,
                                            int32_t fragment);

// Time by which DecideSeal must be asked again if nothing else happens.
absl::Time SealTimer(const RunState& state, int32_t fragment,
                     const RoundTimers& timers);

// COMMIT of a sealed round. If the merge is not finite, an ABORT: an elastic
// run continues without the contribution of the largest norm. A strict run
// pauses, and so does a run in which every norm is too small to be the cause.
Decision DecideCommit(const RunState& state, const Observations& observed,
                      int32_t fragment);

// Outcomes of contributions that no round of `fragment` can take any longer. Looks
// only at those judged since the last call, unless no further round comes.
std::vector<v1::ContributionOutcome> SettleOld(const RunState& state,
                                               Observations& observed,
                                               int32_t fragment);

// True if an operator has revoked a member.
bool HasRevoked(const RunState& state);

// Outcomes of the unsealed contributions of revoked islands.
std::vector<v1::ContributionOutcome> SettleRevoked(const RunState& state,
                                                   const Observations& observed,
                                                   int32_t fragment);

// Outcomes of everything undecided in a cancelled run.
std::vector<v1::ContributionOutcome> SettleCancelled(
    const RunState& state, const Observations& observed, int32_t fragment);

// SEAL of the open round of `fragment` with these contributions, in the order
// of (slot, seq). The OPEN's plans bound the tokens that count.
storage::v1::Record MakeSeal(
    const RunState& state, int32_t fragment,
    const std::vector<const SeenContribution*>& sealed);

// The ABORT of the present round.
storage::v1::Record MakeAbort(const RunState& state, int32_t fragment,
                              const std::string& reason,
                              std::vector<v1::ContributionOutcome> outcomes);

// Sets the run's state.
storage::v1::Record MakeStateRecord(v1::RunState state,
                                    const std::string& reason);

// ABORT for `reason`. Its REJECTED outcomes come first, in their own record.
Decision AbortRound(const RunState& state, int32_t fragment,
                    const std::string& reason,
                    std::vector<v1::ContributionOutcome> outcomes);
// The same and a pause. DropAndPause drops the round's sealed
// contributions, each with the reason `why`.
Decision AbortAndPause(const RunState& state, int32_t fragment,
                       const std::string& reason,
                       std::vector<v1::ContributionOutcome> outcomes);
Decision DropAndPause(const RunState& state, int32_t fragment,
                      const std::string& reason, const std::string& why);

// The name of a round for people: it has the version that the round makes.
std::string RoundName(const RunState& state, int32_t fragment);

// REJECTED, with the whole reason. Requires: it is refused.
v1::ContributionOutcome MakeRejection(const RunState& state,
                                      const SeenContribution& seen);

// `reason`: for REJECTED and DROPPED only.
v1::ContributionOutcome MakeOutcome(const v1::ContributionKey& key,
                                    v1::Outcome outcome,
                                    const std::string& reason = "");

}  // namespace atl::coordinator
