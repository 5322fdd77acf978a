#include "coordinator/metrics/run_values.h"

#include <algorithm>
#include <tuple>

#include "base/layout/run_timing.h"
#include "coordinator/core/run_queries.h"

namespace atl::coordinator {
namespace {

ShardState ReadShardState(const ObservedShard& shard,
                          const ServerInfo* server) {
  // A shard that has not reported since the coordinator's start is not known.
  if (server == nullptr || !server->alive || !shard.reported) {
    return ShardState::kAway;
  }
  if (!shard.report.fault().empty()) return ShardState::kStopped;
  if (!shard.report.blocked_reason().empty()) return ShardState::kBlocked;
  return ShardState::kServing;
}

}  // namespace

RunValues ReadRunValues(const RunMachine& machine,
                        const ServerDirectory& servers) {
  const RunState& state = machine.state();
  RunValues values;
  values.run_id = state.run_id();
  values.state = state.state();
  values.commit_count = state.commit_seq();
  values.merged_token_count = state.merged_token_count();
  for (const Member& member : state.members()) {
    const v1::IslandState one = member.record.state();
    if (v1::IslandState_IsValid(one)) ++values.island_counts[one];
  }
  values.min_quorum =
      IsAsync(state.spec().schedule())
          ? 1
          : std::max(state.spec().schedule().min_quorum(), 1);
  if (!state.ended()) {
    values.shard_counts.emplace();
    values.shard_counts->fill(0);
    for (size_t shard = 0; shard < machine.observed().shards.size(); ++shard) {
      const ShardState one =
          ReadShardState(machine.observed().shards[shard],
                         servers.FindServer(state.server_ids()[shard]));
      ++(*values.shard_counts)[static_cast<size_t>(one)];
    }
  }
  values.wait_start = FindWaitStart(machine);
  values.last_commit = state.commit_seq() > 0 ? state.last_commit_time()
                                              : state.create_time();
  const LiveTotals totals = ComputeTotals(machine);
  values.tokens_per_second = totals.tokens_per_second;
  if (totals.loss_count > 0) {
    values.train_loss = totals.loss_sum / totals.loss_count;
  }
  if (state.newest_evaluation() != nullptr) {
    values.validation_loss = state.newest_evaluation()->loss();
  }
  return values;
}

std::vector<RunValues> ReadShownRuns(const Coordinator& coordinator) {
  std::vector<const RunMachine*> runs;
  for (const auto& [id, run] : coordinator.runs()) runs.push_back(run.get());
  const auto is_before = [](const RunMachine* a, const RunMachine* b) {
    // The end of a run that has not ended is InfiniteFuture.
    return std::tuple(a->state().end_time(), a->state().create_time()) >
           std::tuple(b->state().end_time(), b->state().create_time());
  };
  std::stable_sort(runs.begin(), runs.end(), is_before);
  if (runs.size() > kShownRunsMax) runs.resize(kShownRunsMax);
  std::vector<RunValues> values;
  for (const RunMachine* run : runs) {
    values.push_back(ReadRunValues(*run, coordinator));
  }
  return values;
}

}  // namespace atl::coordinator
