// Exit codes of every program of ours: what a script can tell apart.
//
// Pure. Thread-safe.

#ifndef BASE_STATUS_EXIT_CODE_H_
#define BASE_STATUS_EXIT_CODE_H_

#include "absl/status/status.h"

namespace atl {

// Never above 125: shells keep the rest for themselves.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,           // Anything without a code of its own.
  kUsage = 2,            // The command line is wrong.
  kTimeout = 3,          // A deadline passed.
  kInvalidConfig = 4,    // A run file, a setting or a request is wrong.
  kUnhealthy = 5,        // Data is damaged, or a part has stopped.
  kConnection = 6,       // Nobody answers.
  kForbidden = 7,        // No or wrong credentials, or not this role.
  kNotFound = 8,         // No such object.
  kConflict = 9,         // Exists with other content, fenced, or not now.
  kPreflightFailed = 10,  // A check before the work failed.
  kProcessLost = 11       // An island's processes are apart: start all again.
};

// By the table
//
//   OK 0 | DEADLINE_EXCEEDED 3 | INVALID_ARGUMENT, OUT_OF_RANGE 4
//   DATA_LOSS 5 | UNAVAILABLE 6 | UNAUTHENTICATED, PERMISSION_DENIED 7
//   NOT_FOUND 8 | ALREADY_EXISTS, ABORTED, FAILED_PRECONDITION 9 | others 1
ExitCode CodeToExitCode(absl::StatusCode code);

}  // namespace atl

#endif  // BASE_STATUS_EXIT_CODE_H_
