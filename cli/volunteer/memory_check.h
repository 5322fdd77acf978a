// Whether a run fits the memory that its volunteer lends. Pure.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "atoll/v1/run.pb.h"

namespace atl::cli {

// FAILED_PRECONDITION (reason TOO_LITTLE_MEMORY, exit code 10): an island of
// one process on a CPU needs more than `memory_bytes`. OK for a model that only
// its trainer knows.
absl::Status CheckMemory(const v1::RunSpec& spec, int64_t memory_bytes);

}  // namespace atl::cli
