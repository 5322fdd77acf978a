// --device: what an island computes on.

#pragma once

#include <string>

#include "CLI/App.hpp"
#include "absl/status/status.h"

namespace atl::cli {

// Adds the flag to `command`: where `what` ("this island") computes.
void AddDeviceFlag(CLI::App& command, const std::string& what,
                   std::string& device);

// Whether this program can compute there, on this machine, with a hint.
//
// A usage error (exit code 2): that is no device. Exit code 10: there is none
// here.
absl::Status CheckDeviceFlag(const std::string& device);

}  // namespace atl::cli
