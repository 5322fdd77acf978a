// Decides which answers and plans of a coordinator a server takes. It refuses
// those of another log, and those that are older than what it has taken. Other
// faults the coordinator itself finds, by the log_seen that the server sends.
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::server {

class CoordinatorFence {
 public:
  // The values that the data directory has; an empty cluster_id and 0 if it has
  // none.
  CoordinatorFence(std::string cluster_id, int64_t coordinator_epoch)
      : cluster_id_(std::move(cluster_id)),
        coordinator_epoch_(coordinator_epoch) {}

  // Takes an answer or a plan in. Fields that are not set are not checked.
  //
  // FAILED_PRECONDITION, and nothing is taken in. OTHER_CLUSTER: it is of
  // another log. LOG_BEHIND: it has a lower epoch, or the plan was made at an
  // earlier place in the log than a plan before it.
  absl::Status Take(const v1::RegisterServerResponse& response);
  absl::Status Take(const v1::ServerPlan& plan);

 private:
  absl::Status Check(int64_t coordinator_epoch,
                     const v1::LogPosition& position) const;
  void Note(int64_t coordinator_epoch, const v1::LogPosition& position);

  std::string cluster_id_;
  int64_t coordinator_epoch_;
  // The newest plan's index in the log. Answers to registrations do not count:
  // an answer may be newer than the plan that follows it, because a plan has
  // the position at which it was made.
  int64_t plan_index_ = 0;
};

}  // namespace atl::server
