#include "cli/commands/run/checkpoints.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"

namespace atl::cli {

absl::StatusOr<std::vector<v1::Checkpoint>> ListAllCheckpoints(
    coordinator::Client& client, const std::string& run_id) {
  std::vector<v1::Checkpoint> checkpoints;
  v1::ListCheckpointsRequest request;
  request.set_run_id(run_id);
  do {
    ASSIGN_OR_RETURN(
        v1::ListCheckpointsResponse page,
        client.Call(&v1::TrainingStateService::Stub::ListCheckpoints, request));
    checkpoints.insert(checkpoints.end(), page.checkpoints().begin(),
                       page.checkpoints().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return checkpoints;
}

absl::StatusOr<v1::Checkpoint> FindCheckpoint(coordinator::Client& client,
                                              const std::string& run_id,
                                              const std::string& pin_id) {
  ASSIGN_OR_RETURN(std::vector<v1::Checkpoint> checkpoints,
                   ListAllCheckpoints(client, run_id));
  std::vector<std::string> ids;
  for (v1::Checkpoint& checkpoint : checkpoints) {
    if (checkpoint.pin().pin_id() == pin_id) return std::move(checkpoint);
    ids.push_back(checkpoint.pin().pin_id());
  }
  return WithReason(
      absl::NotFoundError(absl::StrCat(
          "run ", run_id, " has no checkpoint or pin ", pin_id, "; it has ",
          ids.empty() ? "none" : absl::StrJoin(ids, ", "))),
      "NO_SUCH_PIN");
}

}  // namespace atl::cli
