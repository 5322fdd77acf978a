// Contributions that a shard lost before their COMMIT. Their owners push the
// same bytes again. If an owner is away or takes too long, the round is aborted
// and continues without its contribution.
//
// Reports, whole or of changes, give the shard's whole state, so a missing key
// is a loss. Expected are the keys that a SEAL names, because every shard had
// them, and the keys that this shard has reported before.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// How long a sealed round waits for a lost contribution if the run has no
// round_deadline. A large contribution takes minutes over a home uplink.
inline constexpr absl::Duration kRecallWait = absl::Minutes(10);

// Decides on `observed.recalls` for the contributions of which something has
// changed (ContributionIndex::changed). True if the set of lost keys has changed,
// so that islands must be told.
bool UpdateRecalls(const RunState& state, absl::Time now,
                   Observations& observed);

// The keys that the island in `slot` must push again, in order.
std::vector<v1::ContributionKey> NeedsRepush(const Observations& observed,
                                             int32_t slot);

// Decides what losses mean for the sealed round of `fragment`: an ABORT if a
// lost contribution will not come back; a reason without a record if the round
// waits; an empty decision if nothing is lost.
Decision DecideRecall(const RunState& state, const Observations& observed,
                      int32_t fragment, absl::Time now);

// Time by which DecideRecall must be asked again if nothing else happens.
absl::Time RecallTimer(const RunState& state, const Observations& observed);

// A sentence for operators if a shard has stopped: server, shard, cause and
// remedy. Empty if none has.
std::string ShardFault(const RunState& state, const Observations& observed);
// The same for programs; nullopt if no shard has stopped. The caller adds
// next_command if it is empty.
std::optional<v1::Fault> FindShardFault(const RunState& state,
                                        const Observations& observed);

}  // namespace atl::coordinator
