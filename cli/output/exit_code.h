// Exit codes of the `atoll` command.
//
// Pure. Thread-safe.

#ifndef CLI_OUTPUT_EXIT_CODE_H_
#define CLI_OUTPUT_EXIT_CODE_H_

#include "absl/status/status.h"
#include "base/status/exit_code.h"

namespace atl::cli {

// The exit code of `status`: the one set with WithExitCode (error.h), else 7
// for a failed TLS handshake, else CodeToExitCode.
ExitCode ToExitCode(const absl::Status& status);

}  // namespace atl::cli

#endif  // CLI_OUTPUT_EXIT_CODE_H_
