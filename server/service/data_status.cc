#include "server/service/data_status.h"

#include <utility>

#include "absl/time/time.h"
#include "base/status/refusal.h"

namespace atl::server {

absl::Status ToDataStatus(absl::Status status) {
  if (GetReason(status).has_value()) return status;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return WithReasonIfNone(
          WithRetryDelay(std::move(status), absl::Seconds(1)),
          "DISK_FULL");
    case absl::StatusCode::kDataLoss:
      return WithReasonIfNone(std::move(status), "DISK_DAMAGED");
    // The contribution was freed while a stream held it.
    case absl::StatusCode::kAborted:
      return WithReasonIfNone(std::move(status), "ALREADY_DECIDED");
    default:
      return WithDefaultReason(std::move(status));
  }
}

}  // namespace atl::server
