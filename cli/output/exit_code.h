// Exit codes of the `atoll` command.
//
// Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "base/status/exit_code.h"

namespace atl::cli {

// The exit code of `status`: the one set with WithExitCode (error.h), else 7
// for a failed TLS handshake, else CodeToExitCode.
ExitCode ToExitCode(const absl::Status& status);

}  // namespace atl::cli
