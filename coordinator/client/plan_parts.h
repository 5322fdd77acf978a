// A server's plan and a server's report are of all its runs. What is more than
// a message goes in several, cut between runs; a report within one, too, if a
// message does not take it.
//
// Pure. Thread-compatible.

#ifndef COORDINATOR_CLIENT_PLAN_PARTS_H_
#define COORDINATOR_CLIENT_PLAN_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// Of the runs in one message. One run's plan may be more, and one round's
// statistics: both are less than a message (proto/DESIGN.md, "Limits").
inline constexpr size_t kPartBytesMax = 1 << 20;
// Of a shard's report that is not cut, but has a message of its own.
// Coordinators that know of no parts of one take what a message takes (4 MiB),
// so all that they could take reaches them whole; 64 KiB are for the rest of
// the message.
inline constexpr size_t kWholeShardBytesMax = (4 << 20) - (64 << 10);
// A coordinator has no more runs.
inline constexpr int32_t kPlanPartsMax = 1024;

// One response at least, in their order.
std::deque<v1::WatchServerPlanResponse> CutPlan(
    v1::ServerPlan plan, size_t part_bytes_max = kPartBytesMax);

// The same of a report; all parts have its report_seq. The report of a shard
// beyond kWholeShardBytesMax is cut, too: core/report_joiner puts it together.
std::deque<v1::ReportShardsRequest> CutReport(
    v1::ReportShardsRequest report, size_t part_bytes_max = kPartBytesMax);

// Puts the responses of one stream together.
class PlanJoiner {
 public:
  // The plan, if `response` is its last part.
  //
  // INVALID_ARGUMENT: it does not follow from what came before.
  absl::StatusOr<std::optional<v1::ServerPlan>> Add(
      v1::WatchServerPlanResponse response);

 private:
  v1::ServerPlan plan_;      // As far as it has come.
  int32_t part_count_ = 0;  // That have come of it.
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CLIENT_PLAN_PARTS_H_
