// Builds plans: the complete instructions to islands and servers.
//
// Pure. Thread-safe. The caller sets a plan's revision, coordinator_epoch
// and log.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The shards of a run, in order. An address is empty while its server is away.
google::protobuf::RepeatedPtrField<v1::ShardPlacement> BuildPlacement(
    const RunState& state, const ServerDirectory& servers);

// The part that all islands share: everything but `slot`, `island_epoch`,
// `outcomes`, `needs_repush` and an island's own part in open rounds.
v1::IslandPlan BuildSharedIslandPlan(const RunState& state,
                                     const Observations& observed,
                                     const ServerDirectory& servers);

// The sealed rounds, as BuildSharedIslandPlan had them before the SEAL. None in
// async runs.
std::vector<v1::OpenRound> ListSealedRounds(const RunState& state);

// True if the SEAL of `fragment` tells the island with `slot` nothing: its
// contribution is sealed, or it was not asked.
bool IsSealOfOthers(const RunState& state, int32_t fragment, int32_t slot);

// Adds the part for the island with `slot`. `evaluators`: as ListEvaluators
// returns them for the open round of fragment 0; null: it is asked.
void AddIsland(const RunState& state, const Observations& observed,
               int32_t slot, v1::IslandPlan& plan,
               const std::vector<int32_t>* evaluators = nullptr);

// The plan of one run for the owner of `shard`. Requires: placed. With
// `before`, a plan of the same run_epoch: without members and tokens, and the
// seals and commits that `before` has are only named.
v1::ServerRunPlan BuildServerRunPlan(const RunState& state,
                                     const Observations& observed,
                                     int32_t shard,
                                     const v1::ServerRunPlan* before = nullptr);

// Parts of it: `members`; `tokens` and `revoked_slots`.
void AddMembers(const RunState& state, v1::ServerRunPlan& plan);
void AddTokens(const RunState& state, v1::ServerRunPlan& plan);
v1::PlanMember MakePlanMember(const Member& member);
// A commit of a plan before, as ServerRunPlan.is_change names it.
v1::Commit NameCommit(const v1::Commit& commit);

// True once a shard has reported that it keeps nothing of an ended run without
// pins. Until then its plans must tell it about the end and the lost pins.
inline bool HasLetGo(const ObservedShard& shard) {
  return shard.reported && shard.contribution_count == 0 &&
         shard.report.held_for_pins() == 0 &&
         shard.report.checkpoints().empty();
}

// Largest commit_seq that every shard has persisted, by the newest reports;
// before all have reported, the least possible value.
int64_t PersistedCommitSeq(const RunState& state, const Observations& observed);

}  // namespace atl::coordinator
