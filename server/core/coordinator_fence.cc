#include "server/core/coordinator_fence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

}  // namespace

absl::Status CoordinatorFence::Check(int64_t coordinator_epoch,
                                     const v1::LogPosition& position) const {
  if (!position.cluster_id().empty() && !cluster_id_.empty() &&
      position.cluster_id() != cluster_id_) {
    return Refuse(
        Code::kFailedPrecondition, "OTHER_CLUSTER",
        absl::StrCat("this server belongs to cluster ", cluster_id_,
                     ", and the coordinator's log is of cluster ",
                     position.cluster_id(),
                     ": the server keeps what it has, and continues once its "
                     "own coordinator answers at this address"));
  }
  if (coordinator_epoch != 0 && coordinator_epoch < coordinator_epoch_) {
    return Refuse(
        Code::kFailedPrecondition, "LOG_BEHIND",
        absl::StrCat("the coordinator's epoch is ", coordinator_epoch,
                     ", and this server has seen ", coordinator_epoch_,
                     ": it runs on an older copy of its log, or an earlier "
                     "process of it still runs"));
  }
  return absl::OkStatus();
}

void CoordinatorFence::Note(int64_t coordinator_epoch,
                            const v1::LogPosition& position) {
  coordinator_epoch_ = std::max(coordinator_epoch_, coordinator_epoch);
  if (cluster_id_.empty()) cluster_id_ = position.cluster_id();
}

absl::Status CoordinatorFence::Take(
    const v1::RegisterServerResponse& response) {
  RETURN_IF_ERROR(Check(response.coordinator_epoch(), response.log()));
  Note(response.coordinator_epoch(), response.log());
  return absl::OkStatus();
}

absl::Status CoordinatorFence::Take(const v1::ServerPlan& plan) {
  RETURN_IF_ERROR(Check(plan.coordinator_epoch(), plan.log()));
  if (!plan.log().cluster_id().empty()) {
    if (plan.log().index() < plan_index_) {
      return Refuse(Code::kFailedPrecondition, "LOG_BEHIND",
                    absl::StrCat("the plan is of batch ", plan.log().index(),
                                 " of the log, and a plan before it was of ",
                                 plan_index_));
    }
    plan_index_ = plan.log().index();
  }
  Note(plan.coordinator_epoch(), plan.log());
  return absl::OkStatus();
}

}  // namespace atl::server
