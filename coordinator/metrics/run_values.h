// The values that the metrics of a run show at one moment. Pure. Thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/run_machine.h"

namespace atl::coordinator {

// Runs that the label `run` names.
inline constexpr size_t kShownRunsMax = 100;

enum class ShardState { kServing, kBlocked, kStopped, kAway };

struct RunValues {
  std::string run_id;
  v1::RunState state = v1::RUN_STATE_UNSPECIFIED;
  int64_t commit_count = 0;
  int64_t merged_token_count = 0;
  // By v1::IslandState.
  std::array<int64_t, v1::IslandState_ARRAYSIZE> island_counts = {};
  int64_t min_quorum = 0;
  // By ShardState. Not set once the run has ended: its servers may leave.
  std::optional<std::array<int64_t, 4>> shard_counts;
  // Since when the longest waiting round has waited; InfiniteFuture: none does.
  absl::Time wait_start = absl::InfiniteFuture();
  absl::Time last_commit;  // When the run was created, before the first one.
  double tokens_per_second = 0;
  std::optional<double> train_loss;
  std::optional<double> validation_loss;
};

RunValues ReadRunValues(const RunMachine& machine,
                        const ServerDirectory& servers);

// The values of the runs that have not ended, newest first, and then of those
// that ended last; at most kShownRunsMax.
std::vector<RunValues> ReadShownRuns(const Coordinator& coordinator);

}  // namespace atl::coordinator
