// Flags that say what a machine lends to a run: --memory, --disk, and --up and
// --down, the bandwidth caps of an island, all its processes together.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "server/client/bandwidth.h"

namespace atl::cli {

// As written; empty: not given.
struct LentFlags {
  std::string memory;
  std::string disk;
};

// In bytes; 0: not given.
struct Lent {
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;
};

// Adds both flags to `command`. `flags` must outlive the parse.
void AddLentFlags(flags::Command& command, LentFlags& flags);

// INVALID_ARGUMENT (a usage error that names the flag): not a size.
absl::StatusOr<Lent> ReadLent(const LentFlags& flags);

// The flags as written; empty: no cap.
struct CapFlags {
  std::string up;
  std::string down;
};

// Adds both flags to `command`. The help says `whose` caps they are ("this
// island"). `flags` must outlive the parse.
void AddCapFlags(flags::Command& command, const std::string& whose,
                 CapFlags& flags);

// Parses the caps of an island of `process_count` (>= 1) processes.
//
// INVALID_ARGUMENT (a usage error that names the flag): not a bandwidth, or
// below server::kCapBytesPerSecondMin for each process.
absl::StatusOr<server::BandwidthCaps> ReadCaps(const CapFlags& flags,
                                               int process_count = 1);

std::vector<std::string> CapArguments(const CapFlags& flags);

}  // namespace atl::cli
