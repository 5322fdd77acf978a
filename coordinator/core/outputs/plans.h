// Plans: what islands and servers are told, whole.
//
// Pure. Thread-safe. A plan's revision and coordinator_epoch are the caller's.

#ifndef COORDINATOR_CORE_OUTPUTS_PLANS_H_
#define COORDINATOR_CORE_OUTPUTS_PLANS_H_

#include <cstdint>

#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The shards of a run, in order; an address is empty while its server is away.
google::protobuf::RepeatedPtrField<v1::ShardPlacement> BuildPlacement(
    const RunState& state, const ServerDirectory& servers);

// What every island of the run is told: all but `slot`, `island_epoch`,
// `outcomes`, `needs_repush` and its own part in open rounds.
v1::IslandPlan BuildSharedIslandPlan(const RunState& state,
                                     const Observations& observed,
                                     const ServerDirectory& servers);

// Adds what only the island with `slot` is told.
void AddIsland(const RunState& state, const Observations& observed,
               int32_t slot, v1::IslandPlan& plan);

// What the owner of `shard` is told of the run. Requires: placed.
v1::ServerRunPlan BuildServerRunPlan(const RunState& state,
                                     const Observations& observed,
                                     int32_t shard);

// Largest commit_seq that every shard has persisted, by the newest reports;
// before all have reported, the least that it can be.
int64_t PersistedCommitSeq(const RunState& state, const Observations& observed);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_OUTPUTS_PLANS_H_
