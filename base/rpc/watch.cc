#include "base/rpc/watch.h"

#include "base/status/refusal.h"

namespace atl::rpc {

bool IsFinal(const absl::Status& status) {
  if (IsLogFault(status)) return false;
  switch (status.code()) {
    // The peer is unreachable, overloaded or stopping, or the stream broke.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return false;
    default:
      return true;
  }
}

}  // namespace atl::rpc
