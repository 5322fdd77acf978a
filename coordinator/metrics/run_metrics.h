// The families with the label `run`: what each run does.
//
//   atoll_commits_total, atoll_merged_tokens_total,
//   atoll_island_tokens_total{end}, atoll_islands{state},
//   atoll_min_quorum, atoll_shards{state}, atoll_run_state{state},
//   atoll_round_wait_start_timestamp_seconds, atoll_run_outside_band,
//   atoll_run_mirror_timestamp_seconds,
//   atoll_run_mirror_wait_start_timestamp_seconds,
//   atoll_last_commit_timestamp_seconds, atoll_run_train_loss,
//   atoll_run_validation_loss, atoll_run_tokens_per_second
//     as the run's state has them: a restart of the coordinator changes none
//   atoll_refused_island_calls_total
//     joins, leaves and reports above an island's rate, since the start
//   atoll_contributions_total{outcome}, atoll_round_duration_seconds{phase},
//   atoll_contributions_above_norm_bound_total, atoll_failed_evaluations_total
//     counted from durable batches since the start
//
// A scrape asks the event loop for the present values. A loop that does not
// answer in time, because a sync hangs, leaves the values of the last answer.
//
// Thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/sync/mutex.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/run_machine.h"
#include "prometheus/collectable.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"

namespace atl::coordinator {

// Runs that the label `run` names.
inline constexpr size_t kShownRunsMax = 100;

enum class ShardState { kServing, kBlocked, kStopped, kAway };

// The values that the metrics of a run show at one moment.
struct RunValues {
  std::string run_id;
  v1::RunState state = v1::RUN_STATE_UNSPECIFIED;
  int64_t commit_count = 0;
  int64_t merged_token_count = 0;
  v1::IslandTotals totals;  // The members' sums.
  // By v1::IslandState.
  std::array<int64_t, v1::IslandState_ARRAYSIZE> island_counts = {};
  int64_t min_quorum = 0;
  // By ShardState. Not set once the run has ended: its servers may leave.
  std::optional<std::array<int64_t, 4>> shard_counts;
  // Since when the longest waiting round has waited; InfiniteFuture: none does.
  absl::Time wait_start = absl::InfiniteFuture();
  bool outside_band = false;  // RunState::FindHeld.
  // RunMirror.last_success_time, or when the run was created; none: the run has
  // no mirror.
  std::optional<absl::Time> mirror_time;
  std::optional<absl::Time> mirror_wait_start;  // RunMirror.wait_start_time.
  absl::Time last_commit;  // When the run was created, before the first one.
  double tokens_per_second = 0;
  int64_t refused_call_count = 0;  // Observations.
  std::optional<double> train_loss;
  std::optional<double> validation_loss;
};

RunValues ReadRunValues(const RunMachine& machine,
                        const ServerDirectory& servers);

// The values of the runs that have not ended, newest first, and then of those
// that ended last; at most kShownRunsMax.
std::vector<RunValues> ReadShownRuns(const Coordinator& coordinator);

class RunMetrics : public prometheus::Collectable {
 public:
  // Gets the present values, once, from any thread.
  using Take = std::function<void(absl::StatusOr<std::vector<RunValues>>)>;
  // Calls its argument soon, or within this call. Must not block.
  using Source = std::function<void(Take)>;

  // `answer_timeout`: how long a scrape waits for the source.
  explicit RunMetrics(absl::Duration answer_timeout = absl::Milliseconds(300))
      : answer_timeout_(answer_timeout) {}

  // Sets the source that scrapes ask; null: none. The previous one gets no call
  // after this returns. This must outlive the calls that sources still owe.
  void SetSource(Source source);

  // Counts what became durable. Forgets the runs that were deleted.
  void Count(const Effects& effects);

  // prometheus::Collectable:
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  // Counts of one run, since the process's start.
  struct Counts {
    std::array<int64_t, v1::Outcome_ARRAYSIZE> outcomes = {};
    int64_t above_norm_bound = 0;  // Merged ones, of the operator's islands.
    int64_t failed_evaluations = 0;
    // By the label `phase`.
    std::map<std::string, std::unique_ptr<prometheus::Histogram>> durations;

    void Observe(const std::string& phase, absl::Duration duration);
  };

  // Asks the source, unless it still owes an answer, and waits for it.
  void Refresh() const;

  const absl::Duration answer_timeout_;

  // Held over calls of source_. Comes before mutex_.
  mutable Mutex source_mutex_;
  Source source_ ABSL_GUARDED_BY(source_mutex_);

  mutable Mutex mutex_;
  mutable CondVar answered_;
  mutable bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // An answer is owed.
  mutable int64_t answer_count_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::vector<RunValues> values_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Counts> counts_ ABSL_GUARDED_BY(mutex_);  // By run_id.
};

}  // namespace atl::coordinator
