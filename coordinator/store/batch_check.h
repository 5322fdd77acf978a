// What every store checks before it writes, and says in the same words.
// Thread-safe.

#ifndef COORDINATOR_STORE_BATCH_CHECK_H_
#define COORDINATOR_STORE_BATCH_CHECK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// Newest revision of each log that a batch appends to or has a snapshot of,
// once it is written. `newest` gives the one before, 0 for a log that is not
// there.
//
// INVALID_ARGUMENT: the batch does not fit, as Store::Append says. Else the
// errors of `newest`.
absl::StatusOr<std::map<std::string, int64_t>> RevisionsAfter(
    const Batch& batch,
    const std::function<absl::StatusOr<int64_t>(const std::string& run_id)>&
        newest);

// OUT_OF_RANGE: what is asked for of the log of `run_id` was deleted.
absl::Status Compacted(const std::string& run_id, int64_t compacted_revision);

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_BATCH_CHECK_H_
