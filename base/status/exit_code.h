// Exit codes of all our programs, for scripts. Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"

namespace atl {

// Never above 125: shells reserve the rest.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,           // Any error without its own code.
  kUsage = 2,            // The command line is wrong.
  kTimeout = 3,          // A deadline passed.
  kInvalidConfig = 4,    // A run file, a setting or a request is wrong.
  kUnhealthy = 5,        // Data is damaged, or a component has stopped.
  kConnection = 6,       // The peer does not answer, or is full for now.
  kForbidden = 7,        // Missing or wrong credentials, or a wrong role.
  kNotFound = 8,         // No such object.
  kConflict = 9,         // Exists with other content, fenced, or wrong state.
  kPreflightFailed = 10,  // A preflight check failed.
  kProcessLost = 11,      // An island lost a process: restart all of them.
  kTerminated = 12        // A signal ended an island: start it again.
};

// The mapping:
//   OK 0 | DEADLINE_EXCEEDED 3 | INVALID_ARGUMENT, OUT_OF_RANGE 4
//   DATA_LOSS 5 | UNAVAILABLE 6 | UNAUTHENTICATED, PERMISSION_DENIED 7
//   NOT_FOUND 8 | ALREADY_EXISTS, ABORTED, FAILED_PRECONDITION 9 | others 1
ExitCode CodeToExitCode(absl::StatusCode code);

}  // namespace atl
