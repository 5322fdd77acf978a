// The families that every Prometheus client has of its process. Thread-safe.

#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/metric_family.h"

namespace atl {

// The kernel's counts of a process.
struct ProcessUsage {
  double cpu_seconds = 0;         // In user and kernel mode.
  double start_time_seconds = 0;  // Since the epoch.
  double virtual_memory_bytes = 0;
  double resident_memory_bytes = 0;
  double thread_count = 0;
};

// Reads /proc/PID/stat, with the boot time of /proc/stat. False, with `usage`
// unchanged, if `stat` lacks a field. Pure but for the sizes of a tick and a
// page, which the kernel tells.
bool ParseProcessStat(absl::string_view stat, double boot_time_seconds,
                      ProcessUsage& usage);

// This process's families. A family whose file in /proc cannot be read is
// missing.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace atl
