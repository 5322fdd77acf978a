#include "base/status/exit_code.h"

namespace atl {

ExitCode CodeToExitCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimeout;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kInvalidConfig;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kUnhealthy;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kConnection;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kForbidden;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return ExitCode::kConflict;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace atl
