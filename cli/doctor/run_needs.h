// The memory and disk that an island of a run needs. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"

namespace atl::cli {

struct RunNeeds {
  int64_t memory_bytes = 0;  // The process's memory, without a margin.
  int64_t disk_bytes = 0;    // Its local checkpoints.
  // The trainer is another process, with memory of its own.
  bool is_external = false;
  bool fetches_data = false;  // Data by URL.
};

// `spec` may be a RunPreview's: of its layout only the elements of each
// fragment are read.
// INVALID_ARGUMENT: the model is one that this program does not know.
absl::StatusOr<RunNeeds> ComputeRunNeeds(const v1::RunSpec& spec);

}  // namespace atl::cli
