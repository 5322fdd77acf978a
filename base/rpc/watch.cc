#include "base/rpc/watch.h"

namespace atl::rpc {

bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    // The peer is away, overloaded, stopping, or broke off in the middle.
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
