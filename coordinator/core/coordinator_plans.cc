// The plans that leave the core, and which servers they concern.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/coordinator.h"
#include "coordinator/core/outputs/plans.h"

namespace atl::coordinator {

v1::IslandPlan Coordinator::IslandPlanHead(const RunMachine& run) const {
  v1::IslandPlan head;
  head.set_revision(PlanRevision());
  head.set_coordinator_epoch(coordinator_epoch_);
  *head.mutable_log() = Position(&run);
  head.set_persisted_commit_seq(
      PersistedCommitSeq(run.state(), run.observed()));
  return head;
}

v1::IslandPlan Coordinator::IslandPlan(const RunMachine& run,
                                       int32_t slot) const {
  v1::IslandPlan plan =
      BuildSharedIslandPlan(run.state(), run.observed(), *this);
  AddIsland(run.state(), run.observed(), slot, plan);
  plan.MergeFrom(IslandPlanHead(run));
  return plan;
}

v1::ServerPlan Coordinator::ServerPlanHead(const std::string& server_id) const {
  v1::ServerPlan head;
  *head.mutable_log() = Position(nullptr);
  head.set_revision(PlanRevision());
  head.set_coordinator_epoch(coordinator_epoch_);
  deleted_.AddToPlan(server_id, head);
  return head;
}

std::optional<int32_t> Coordinator::FindPlannedShard(
    const std::string& server_id, const RunMachine& run) const {
  const RunState& state = run.state();
  const auto& owners = state.server_ids();
  const auto owner = std::find(owners.begin(), owners.end(), server_id);
  if (owner == owners.end()) return std::nullopt;
  const auto shard = static_cast<int32_t>(owner - owners.begin());
  if (state.ended() && state.pins().empty() &&
      HasLetGo(run.observed().shards[shard])) {
    return std::nullopt;
  }
  return shard;
}

void Coordinator::AddIslandNames(const RunMachine& run,
                                 v1::ServerRunPlan& plan) const {
  const std::string& run_uid = run.state().run_uid();
  for (std::string& name : enrolments_.RevokedNames(run_uid)) {
    plan.add_revoked_island_ids(std::move(name));
  }
  plan.set_lists_enrolled(true);
  for (std::string& entry : enrolments_.ListEnrolled(run_uid)) {
    plan.add_enrolled(std::move(entry));
  }
}

v1::ServerRunPlan Coordinator::ServerRunPlan(const RunMachine& run,
                                             int32_t shard) const {
  v1::ServerRunPlan plan =
      BuildServerRunPlan(run.state(), run.observed(), shard);
  AddIslandNames(run, plan);
  return plan;
}

v1::ServerPlan Coordinator::ServerPlan(const std::string& server_id) const {
  v1::ServerPlan plan = ServerPlanHead(server_id);
  for (const auto& [id, run] : runs_) {
    const std::optional<int32_t> shard = FindPlannedShard(server_id, *run);
    if (shard.has_value()) *plan.add_runs() = ServerRunPlan(*run, *shard);
  }
  return plan;
}

int64_t Coordinator::ServerPlanRevision(const std::string& server_id) const {
  const auto server = servers_.find(server_id);
  // A plan of an earlier start does not count.
  return std::max(coordinator_epoch_ << 40, server == servers_.end()
                                                ? 0
                                                : server->second.plan_revision);
}

void Coordinator::NoteServerPlans(const Effects& effects) {
  const auto note = [&](const std::string& server_id) {
    const auto server = servers_.find(server_id);
    if (server != servers_.end()) server->second.plan_revision = PlanRevision();
  };
  for (const std::string& id : effects.changed_servers) note(id);
  for (const auto& [run_id, change] : effects.plan_changes) {
    if (!change.servers) continue;
    for (const std::string& id : runs_.at(run_id)->state().server_ids()) {
      note(id);
    }
  }
}

}  // namespace atl::coordinator
