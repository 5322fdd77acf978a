#include "worker/core/leave_reason.h"

#include "base/status/not_finite.h"

namespace atl::worker {

absl::string_view GetLeaveReason(ActionKind kind, const absl::Status& status) {
  if (FindNotFinite(status).has_value()) {
    return "its training was not finite, time and again, from finite versions";
  }
  if (kind == ActionKind::kContribute || kind == ActionKind::kSave) {
    return "its contribution cannot be saved";
  }
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return "its data is not the run's";
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
      return "its data cannot be read";
    default:
      return "its training failed";
  }
}

}  // namespace atl::worker
