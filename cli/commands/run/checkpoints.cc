#include "cli/commands/run/checkpoints.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"

namespace atl::cli {

absl::StatusOr<v1::Checkpoint> FindCheckpoint(coordinator::Client& client,
                                              const std::string& run_id,
                                              const std::string& pin_id) {
  ASSIGN_OR_RETURN(std::vector<v1::Checkpoint> checkpoints,
                   client.ListCheckpoints(run_id));
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
