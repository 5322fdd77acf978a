// Measures what this machine offers: cores, instructions, memory, disks.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace atl::cli {

struct DiskFacts {
  std::string path;     // As asked for.
  absl::Status status;  // Why the disk cannot be used.
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

struct MachineFacts {
  std::string cpu_model;
  int core_count = 1;  // Cores that this process may use.
  bool has_avx2_and_fma = false;
  bool has_avx512 = false;
  int64_t memory_bytes = 0;            // Bytes that this process may use.
  int64_t available_memory_bytes = 0;  // Without swapping; 0: unknown.
  DiskFacts state;                     // The state directory's disk.
  DiskFacts cache;                     // The data cache's disk.
};

// Costs milliseconds. A directory that does not exist yet counts as its nearest
// parent.
MachineFacts ReadMachineFacts(const std::string& state_directory,
                              const std::string& cache_directory);

// "MemAvailable" of the text of /proc/meminfo; 0 if it is not there.
int64_t ParseAvailableMemory(const std::string& meminfo);

// The nearest existing directory of `path`; "/" at last.
std::string FindExistingParent(const std::string& path);

// The median time to write 4 KiB and sync them, in a few writes to a new file
// in the nearest existing parent of `directory`, which is removed. Ends after
// the first write beyond a second.
// RESOURCE_EXHAUSTED: the disk is full. Others: the disk's error.
absl::StatusOr<absl::Duration> MeasureSync(const std::string& directory);

// The median of `samples`, which is not empty.
absl::Duration FindMedian(std::vector<absl::Duration> samples);

}  // namespace atl::cli
