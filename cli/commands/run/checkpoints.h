// Finds a pinned cut of a run.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/client/client.h"

namespace atl::cli {

// The one with `pin_id`. ExportCheckpoint would make a missing one.
// NOT_FOUND: NO_SUCH_PIN, with the ids that there are. Others: the call's.
absl::StatusOr<v1::Checkpoint> FindCheckpoint(coordinator::Client& client,
                                              const std::string& run_id,
                                              const std::string& pin_id);

}  // namespace atl::cli
