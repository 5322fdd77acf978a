// Adds to an error a reason that a script can compare, and a hint on what to do
// next. Both are payloads of the absl::Status.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/exit_code.h"

namespace atl::cli {

// Sets the reason: UPPER_SNAKE_CASE, stable over versions. OK stays unchanged.
absl::Status WithReason(absl::Status status, absl::string_view reason);

// Sets the hint: a sentence, if possible with the next command to run.
absl::Status WithHint(absl::Status status, absl::string_view hint);

// Overrides the exit code of the status code.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// Prepends "`context`: " to the message; keeps the code and payloads.
absl::Status WithContext(const absl::Status& status, absl::string_view context);

// An error in how the command was called: exit code 2.
absl::Status UsageError(absl::string_view message, absl::string_view hint = "");

// The reason that was set, else the reason of the status's
// google.rpc.ErrorInfo, else the status code's name ("NOT_FOUND").
std::string GetReason(const absl::Status& status);

// The hint that was set, else one for the reason or the status code, or empty.
std::string GetHint(const absl::Status& status);

// The exit code that was set, else 7 for a failed TLS handshake, else
// CodeToExitCode.
ExitCode ToExitCode(const absl::Status& status);

}  // namespace atl::cli
