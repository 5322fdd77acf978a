// Typed details of an error: what google.rpc calls ErrorInfo, RetryInfo and
// BadRequest, kept as payloads of an absl::Status.
//
// A payload's key is its type URL ("type.googleapis.com/google.rpc.ErrorInfo"),
// its value the serialised message, so that base/rpc/status.h moves them on and
// off the wire without knowing them.
//
// Pure. Thread-safe. Adding to an OK status does nothing.

#ifndef BASE_RPC_STATUS_DETAILS_H_
#define BASE_RPC_STATUS_DETAILS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::rpc {

// The domain of every ErrorInfo of ours.
inline constexpr absl::string_view kErrorDomain = "atoll.v1";

// What an ErrorInfo says.
struct ErrorReason {
  std::string reason;  // UPPER_SNAKE_CASE, e.g. "STALE_ISLAND_EPOCH".
  // What the reason speaks of, e.g. {"island_epoch", "3"}; sorted by name.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// One wrong field of a request.
struct FieldViolation {
  std::string field;        // Path from the request, "spec.inner.batch_size".
  std::string description;  // What is wrong and what would be right.
};

// `status` with an ErrorInfo; one that it has is replaced.
absl::Status WithReason(absl::Status status, const ErrorReason& reason);

// `status` with an ErrorInfo whose reason is its code's name, unless it has a
// reason or field violations: whoever calls finds a reason in every error.
absl::Status WithDefaultReason(absl::Status status);

// `status` with a RetryInfo: the caller should wait at least `delay` (>= 0).
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// `status` with a BadRequest; one that it has is replaced.
absl::Status WithFieldViolations(absl::Status status,
                                 const std::vector<FieldViolation>& violations);

// INVALID_ARGUMENT that names every violation in its message and carries them
// as a BadRequest. Requires: not empty.
absl::Status InvalidFields(const std::vector<FieldViolation>& violations);

// The detail, if `status` has one that can be read.
std::optional<ErrorReason> GetReason(const absl::Status& status);
std::optional<absl::Duration> GetRetryDelay(const absl::Status& status);
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

}  // namespace atl::rpc

#endif  // BASE_RPC_STATUS_DETAILS_H_
