// Exit codes of the `atoll` command.
//
// Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "base/status/exit_code.h"

namespace atl::cli {

// The code for `status`: one that was set with WithExitCode (error.h), else 7
// for a handshake that failed, else that of CodeToExitCode.
ExitCode ToExitCode(const absl::Status& status);

}  // namespace atl::cli
