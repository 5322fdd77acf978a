// The pinned cuts of a run. Errors of all: those of the call.
//
// Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/client/client.h"

namespace atl::cli {

// All of them, page by page.
absl::StatusOr<std::vector<v1::Checkpoint>> ListAllCheckpoints(
    coordinator::Client& client, const std::string& run_id);

// The one with `pin_id`. ExportCheckpoint would make a missing one.
// NOT_FOUND: NO_SUCH_PIN, with the ids that there are.
absl::StatusOr<v1::Checkpoint> FindCheckpoint(coordinator::Client& client,
                                              const std::string& run_id,
                                              const std::string& pin_id);

}  // namespace atl::cli
