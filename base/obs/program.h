// Functions that all servers share: open-file limit, exit code.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// Raises the process's limit of open files to the hard limit, and returns it.
// Logs a warning if it is low for a server: each connection, log segment and
// version's file needs one.
uint64_t RaiseOpenFileLimit();

// Reports an error in `status` of the program `name` to stderr, and returns the
// exit code (base/status/exit_code.h).
int EndProgram(absl::string_view name, const absl::Status& status);

}  // namespace atl
