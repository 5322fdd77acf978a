// Computes the memory and disk that an island of a run needs, and decides
// whether they fit in the part of a machine that a volunteer lends. Pure.
// Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "cli/doctor/machine_facts.h"
#include "cli/flags/lent_flags.h"

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

struct RunLimits {
  int64_t memory_bytes = INT64_MAX;
  int64_t disk_bytes = INT64_MAX;  // For local checkpoints.
  bool memory_is_given = false;    // By --memory.
  bool disk_is_given = false;      // By --disk.
};

// A given limit stands. Without one an enrolled island has half of the free
// memory, and the larger of 10 GB and a tenth of the free disk: its user has not
// seen the run's size. Other islands have no limit.
RunLimits LimitsOf(const MachineFacts& machine, const Lent& given,
                   bool is_enrolled);

// FAILED_PRECONDITION (reason TOO_LITTLE_MEMORY, exit code 10): an island of
// one process on a CPU needs more memory.
absl::Status CheckMemory(const RunNeeds& needs, const RunLimits& limits);
// The same for the disk, with the reason TOO_LITTLE_DISK.
absl::Status CheckDisk(const RunNeeds& needs, const RunLimits& limits);

}  // namespace atl::cli
