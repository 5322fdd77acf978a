// --up and --down: what an island may use of its link, all its processes
// together.

#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "server/client/bandwidth.h"

namespace atl::cli {

// As they were written; empty for no cap.
struct CapFlags {
  std::string up;
  std::string down;
};

// Adds the two to `command`. `whose` ("this island") is for the help. `flags`
// must outlive the parse.
void AddCapFlags(CLI::App& command, const std::string& whose, CapFlags& flags);

// The caps of an island of `process_count` (>= 1) processes.
//
// INVALID_ARGUMENT (a usage error that names the flag): no bandwidth, or less
// than server::kCapBytesPerSecondMin for each process.
absl::StatusOr<server::BandwidthCaps> ReadCaps(const CapFlags& flags,
                                               int process_count = 1);

// The command line that says `flags`.
std::vector<std::string> CapArguments(const CapFlags& flags);

}  // namespace atl::cli
