// Checks that all stores share. Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// Newest revision of each log that a batch appends to, snapshots or deletes,
// after the batch; 0 for a log that it only deletes. `newest` returns the
// revision before the batch, 0 for an unknown log.
//
// INVALID_ARGUMENT: as Store::Append. Also the errors of `newest`.
absl::StatusOr<std::map<std::string, int64_t>> RevisionsAfter(
    const Batch& batch,
    const std::function<absl::StatusOr<int64_t>(const std::string& run_id)>&
        newest);

// OUT_OF_RANGE: the requested records of the log of `run_id` were deleted.
absl::Status Compacted(const std::string& run_id, int64_t compacted_revision);

}  // namespace atl::coordinator
