// Decides whether a run fits in the part of a machine that a volunteer lends.
// Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/run_needs.h"
#include "cli/flags/lent_flags.h"

namespace atl::cli {

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
