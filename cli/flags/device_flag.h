// --device: what an island computes on.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/flags/flags.h"

namespace atl::cli {

// Adds the flag to `command`. The help names `what` ("this island") computes.
// Default: "cpu".
void AddDeviceFlag(flags::Command& command, const std::string& what,
                   std::string& device);

// Checks that this program can compute on `device` on this machine. Errors have
// a hint.
//
// A usage error (exit code 2): not a device. Exit code 10 (NO_DEVICE): this
// build or machine lacks it.
absl::Status CheckDeviceFlag(const std::string& device);

}  // namespace atl::cli
