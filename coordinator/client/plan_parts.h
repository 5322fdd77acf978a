// Splits a server's plan and report, which cover all its runs, into messages. A
// plan is split between runs. A report is split between shards, and within the
// report of a shard that exceeds one message.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/server_service.pb.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

// Target size of the runs in one message. One run's plan, or one round's
// statistics, may be larger but fits a message (proto/LIMITS.md).
inline constexpr size_t kPartBytesMax = 1 << 20;
// Largest shard report that is sent whole, in its own message. Coordinators
// that do not support parts of a shard's report accept one message (4 MiB), so
// they still get every report that fits. 64 KiB remain for the rest of the
// message.
inline constexpr size_t kWholeShardBytesMax = (4 << 20) - (64 << 10);
// Most runs of a coordinator, and so most parts of a plan.
inline constexpr int32_t kPlanPartsMax = 1024;

// Splits a plan into at least one response, in order.
std::deque<v1::WatchServerPlanResponse> CutPlan(
    v1::ServerPlan plan, size_t part_bytes_max = kPartBytesMax);

// Adds what only `skipped` says to `next`, the plan after it. The result is the
// change since the plan before `skipped`. Requires: both are of one stream.
void MergePlans(v1::ServerPlan skipped, v1::ServerPlan& next);

// Splits a report; all parts have its report_seq. Also splits the report of a
// shard above kWholeShardBytesMax; coordinator/core/report_joiner joins it.
std::deque<v1::ReportShardsRequest> CutReport(
    v1::ReportShardsRequest report, size_t part_bytes_max = kPartBytesMax);

// Joins the responses of one stream.
class PlanJoiner {
 public:
  // Returns the whole plan if `response` is its last part, and the plan is newer
  // than those before. Unchanged parts are those of the plan before: the result
  // has no unchanged_run_ids and no changes.
  //
  // INVALID_ARGUMENT: `response` does not follow the part before it, or the plan
  // names as unchanged what the plan before did not have.
  absl::StatusOr<std::optional<v1::ServerPlan>> Add(
      v1::WatchServerPlanResponse response);

 private:
  // Puts what has not changed from newest_ into plan_.
  absl::Status AddUnchanged();

  v1::ServerPlan plan_;     // The parts received so far, joined.
  v1::ServerPlan newest_;   // The newest whole plan.
  PlanPosition newest_position_;
  int32_t part_count_ = 0;  // Number of these parts.
};

}  // namespace atl::coordinator
