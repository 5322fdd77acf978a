// Judges the facts of a machine that will train. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/doctor/check.h"
#include "cli/doctor/lent_machine.h"
#include "cli/doctor/machine_facts.h"

namespace atl::cli {

// WARN: one core.
Check JudgeCores(const MachineFacts& machine);

// FAILED: without AVX2 or FMA.
Check JudgeIsa(const MachineFacts& machine);

// FAILED: the machine has less memory than the run needs, or lends less. WARN:
// less is available now, or the run is not known.
Check JudgeMemory(const MachineFacts& machine,
                  const std::optional<RunNeeds>& needs,
                  const RunLimits& limits);

// FAILED: a disk cannot be written, or its free space, or what the machine
// lends, is less than the local checkpoint needs. WARN: less than the
// checkpoint and the data cache of at most `cache_bytes_max` need together. Two
// directories on disks of the same size and free space count as one disk.
Check JudgeDiskSpace(const MachineFacts& machine,
                     const std::optional<RunNeeds>& needs,
                     const RunLimits& limits, int64_t cache_bytes_max);

// FAILED: it cannot be written. WARN: above 50 ms.
Check JudgeDiskSync(const absl::StatusOr<absl::Duration>& sync);

// WARN: the kernel has no Landlock (`landlock_abi` 0), so `atoll join` trains
// without its sandbox.
Check JudgeSandbox(int landlock_abi);

// The time of the gate's answer, by its clock and by ours.
struct ClockFacts {
  absl::Time asked;     // Our clock, before the call.
  absl::Time answered;  // Our clock, after it.
  absl::Time gate;      // The gate's, in between.
};

// WARN: the clocks differ by more than 30 s. FAILED: by more than 5 min, by
// which certificates begin early. Subtracts the duration of the call.
Check JudgeClock(const ClockFacts& clock);

}  // namespace atl::cli
