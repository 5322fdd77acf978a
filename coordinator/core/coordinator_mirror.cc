// The content of the cluster object: a log that takes the place of a lost one
// begins with it; and that of the owners of runs.

#include <string>
#include <vector>

#include "base/codec/sha256.h"
#include "coordinator/core/coordinator.h"

namespace atl::coordinator {
namespace {

constexpr int32_t kClusterFormat = 1;
constexpr int32_t kOwnerFormat = 1;

}  // namespace

bool ChangesClusterObject(const LogEntry& entry) {
  if (!entry.run_id.empty()) {
    return entry.record.has_run_created() || entry.record.has_run_placed() ||
           entry.record.has_run_restored() ||
           entry.record.run_state_set().state() == v1::RUN_STATE_CANCELLED;
  }
  return !entry.record.has_audited();
}

storage::v1::RunOwner Coordinator::DescribeOwner(const RunState& state) const {
  storage::v1::RunOwner owner;
  owner.set_format(kOwnerFormat);
  owner.set_run_id(state.run_id());
  owner.set_run_uid(state.run_uid());
  owner.set_run_epoch(state.run_epoch());
  const v1::LogPosition position = log_history_.position(0);
  owner.set_cluster_id(position.cluster_id());
  owner.set_start_id(position.start_id());
  owner.set_coordinator_epoch(coordinator_epoch_);
  if (!state.restores().empty()) {
    owner.set_restore_commit_seq(state.restores().back().commit_seq());
  }
  return owner;
}

std::vector<storage::v1::RunOwner> Coordinator::ListMirrorOwners() const {
  std::vector<storage::v1::RunOwner> owners;
  if (!CheckWritable().ok()) return owners;
  for (const auto& [id, run] : runs_) {
    const RunState& state = run->state();
    if (state.spec().checkpoint().mirror() &&
        state.state() != v1::RUN_STATE_CANCELLED) {
      owners.push_back(DescribeOwner(state));
    }
  }
  return owners;
}

storage::v1::ClusterObject Coordinator::DescribeForMirror() const {
  storage::v1::CoordinatorSnapshot own = OwnSnapshot();
  storage::v1::ClusterObject object;
  object.set_format(kClusterFormat);
  object.set_cluster_id(log_history_.cluster_id());
  object.set_coordinator_epoch(coordinator_epoch_);
  bool has_records = !own_entries_.empty();
  for (const auto& [id, run] : runs_) has_records |= run->has_records();
  object.set_log_index(log_history_.index() + (has_records ? 1 : 0));
  object.mutable_starts()->Swap(own.mutable_starts());
  for (auto& start : *object.mutable_starts()) start.clear_log_secret();
  const codec::Sha256Digest digest =
      codec::ComputeSha256(log_history_.secret());
  object.set_log_secret_sha256(std::string(digest.begin(), digest.end()));
  object.mutable_servers()->Swap(own.mutable_servers());
  object.mutable_tokens()->Swap(own.mutable_tokens());
  object.mutable_identities()->Swap(own.mutable_identities());
  object.mutable_deleted()->Swap(own.mutable_deleted());
  for (const auto& [id, run] : runs_) {
    const RunState& state = run->state();
    storage::v1::ClusterRun& added = *object.add_runs();
    added.set_run_id(id);
    added.set_run_uid(state.run_uid());
    added.set_cancelled(state.state() == v1::RUN_STATE_CANCELLED);
    added.set_run_epoch(state.run_epoch());
    if (!state.restores().empty()) {
      added.set_restore_commit_seq(state.restores().back().commit_seq());
    }
    if (state.server_ids().empty()) continue;
    added.mutable_placed()->set_placement_epoch(state.placement_epoch());
    for (const std::string& server_id : state.server_ids()) {
      added.mutable_placed()->add_server_ids(server_id);
    }
  }
  return object;
}

}  // namespace atl::coordinator
