// Contributions that a shard had and has lost before their COMMIT: their owners
// push the same bytes again; if one is away, or takes too long, its round is
// aborted and goes on without it.
//
// A shard's report is its whole state, so a loss is an absence: of what a SEAL
// names (every shard had it, or it would not have been sealed), and of what
// this shard has reported before.
//
// Pure. Thread-compatible.

#ifndef COORDINATOR_CORE_ROUNDS_RECALLS_H_
#define COORDINATOR_CORE_ROUNDS_RECALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/decision.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// How long a sealed round waits for what it needs again, where the run has no
// round_deadline: a large contribution over a home uplink takes minutes.
inline constexpr absl::Duration kRecallWait = absl::Minutes(10);

// Brings `view.recalls` up to date with the reports. True if the keys that
// islands are told have changed.
bool UpdateRecalls(const RunState& state, absl::Time now,
                   Observations& observed);

// The keys that the island in `slot` has to push again, in order.
std::vector<v1::ContributionKey> NeedsRepush(const Observations& observed,
                                             int32_t slot);

// What the losses mean for the sealed round of `fragment`: an ABORT if one
// cannot be made good; no record and why the round waits, if it waits for one;
// neither if nothing is lost.
Decision DecideRecall(const RunState& state, const Observations& observed,
                      int32_t fragment, absl::Time now);

// When DecideRecall has to be asked again at the latest without news.
absl::Time RecallTimer(const RunState& state, const Observations& observed);

// Why a shard has stopped and what an operator can do, in a sentence that
// names server, shard and cause; empty if none has.
std::string ShardFault(const RunState& state, const Observations& observed);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_RECALLS_H_
