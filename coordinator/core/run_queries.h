// Builds the answers to queries about one run. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/enrolment.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/core/run_machine.h"

namespace atl::coordinator {

// Points of the series that do not come from records; the newest is last.
struct VolatileSeries {
  std::deque<v1::MetricPoint> tokens_per_second;
  std::deque<v1::MetricPoint> live_count;
  std::deque<v1::MetricPoint> round_wait;
  std::deque<v1::MetricPoint> sent_bytes;
  std::deque<v1::MetricPoint> received_bytes;
  std::deque<v1::MetricPoint> stopped_count;   // Shards.
  std::deque<v1::MetricPoint> hindered_count;  // Shards.
};

// Sums over a run's islands.
struct LiveTotals {
  int32_t count = 0;  // Present islands.
  double tokens_per_second = 0;  // Sum over present islands.
  double loss_sum = 0;     // Training losses of present islands, where known.
  int32_t loss_count = 0;  // Islands in loss_sum.
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
};
LiveTotals ComputeTotals(const RunMachine& machine);

// Since when the longest waiting round has waited; InfiniteFuture if no round
// waits for a delivery.
absl::Time FindWaitStart(const RunMachine& machine);

// `with_tensors`: with the tensors of the run's layout.
v1::Run BuildRun(const RunMachine& machine, bool with_tensors);
v1::Run BuildRunWithoutSpec(const RunMachine& machine);

// A run as ListRuns reads it: without its spec, and the spec, which is shared.
struct RunToList {
  v1::Run run;
  std::shared_ptr<const v1::RunSpec> spec;
};
// All of them, their specs without tensors, without next_page_token.
v1::ListRunsResponse BuildRuns(const std::vector<RunToList>& runs);

// A GetRunResponse that has only the spec of BuildRun with tensors, encoded. It
// is by far the largest part of an answer, and never changes: it is encoded once
// and shared. A parser merges it with the rest, which follows it.
std::shared_ptr<const std::string> EncodeSpecPart(RunMachine& machine);
// The rest: the run without its spec, and of a complete run its final versions
// and where to read them.
v1::GetRunResponse BuildRunAnswer(const RunMachine& machine,
                                  const ServerDirectory& servers);

// For holders of a token, without program_version. At most 13 KiB.
v1::RunPreview BuildRunPreview(const RunMachine& machine);

// Requires: the run has checkpoint.mirror.
v1::RunMirror BuildMirror(const RunMachine& machine,
                          const ServerDirectory& servers);

v1::GetRunStateResponse BuildRunState(const RunMachine& machine,
                                      const ServerDirectory& servers);

// All islands, without next_page_token.
v1::ListIslandsResponse BuildIslands(const RunMachine& machine);
// All checkpoints, without next_page_token. An item's name is its place.
v1::ListCheckpointsResponse BuildCheckpoints(const RunMachine& machine);
std::string CheckpointName(const v1::Checkpoint& checkpoint);

// The items of a page of a list: [begin, end), and the next page's token.
struct ItemsPage {
  size_t begin = 0;
  size_t end = 0;
  std::string next_page_token;
};
// `count` or `names`: of the whole list, in its order. An item that a token names
// may be gone.
//
// INVALID_ARGUMENT: page_size or page_token is wrong.
absl::StatusOr<ItemsPage> PlanIslands(size_t count,
                                      const v1::ListIslandsRequest& request);
absl::StatusOr<ItemsPage> PlanCheckpoints(
    const std::vector<std::string>& names,
    const v1::ListCheckpointsRequest& request);
absl::StatusOr<ItemsPage> PlanRuns(const std::vector<std::string>& run_ids,
                                   const v1::ListRunsRequest& request);

// A page of rounds: commit_seq in [begin, end), of those that are kept, all of
// the run's past. A page ends where a restore has taken commits out. The
// caller reads the rounds and their evaluations from the history.
struct RoundsPage {
  int64_t first_kept = 1;
  int64_t begin = 1;
  int64_t end = 1;
  bool last = true;  // No further page.
  std::deque<v1::Restore> restores;  // RunState::restores().
};
// INVALID_ARGUMENT: page_size, page_token or after_commit_seq is wrong.
absl::StatusOr<RoundsPage> PlanRounds(const RunState& state,
                                      const v1::ListRoundsRequest& request);

// All series.
v1::GetMetricsResponse BuildMetrics(const RunMachine& machine,
                                    const VolatileSeries& series);

void SampleSeries(const RunMachine& machine, absl::Time now,
                  VolatileSeries& series);

}  // namespace atl::coordinator
