// What an error tells a person beside its code and message: a reason that a
// script can compare, and a hint that says what to do next. Both travel as
// payloads of the absl::Status.
//
// Pure. Thread-safe.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/exit_code.h"

namespace atl::cli {

// Sets the reason: UPPER_SNAKE_CASE, stable over versions. Nothing for OK.
absl::Status WithReason(absl::Status status, absl::string_view reason);

// Sets the hint: a sentence, best with the next command to run.
absl::Status WithHint(absl::Status status, absl::string_view hint);

// Sets another exit code than the status code's own.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// Puts "`context`: " before the message and keeps code and payloads.
absl::Status WithContext(const absl::Status& status, absl::string_view context);

// An error in how the command was called: exit code 2.
absl::Status UsageError(absl::string_view message, absl::string_view hint = "");

// The reason; if none was set, that of the google.rpc.ErrorInfo that came with
// the status, else the status code's name ("NOT_FOUND").
std::string GetReason(const absl::Status& status);

// The hint; if none was set, one for the status code, or empty.
std::string GetHint(const absl::Status& status);

// True if a TLS handshake failed: the sides do not trust each other.
bool IsHandshakeFailure(const absl::Status& status);

// The exit code that was set.
std::optional<ExitCode> GetExitCode(const absl::Status& status);

}  // namespace atl::cli
