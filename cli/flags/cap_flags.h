// --up and --down: bandwidth caps of an island, all its processes together.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "server/client/bandwidth.h"

namespace atl::cli {

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
