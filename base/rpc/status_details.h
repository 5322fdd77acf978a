// Typed details of an error: google.rpc's ErrorInfo, RetryInfo and BadRequest
// as payloads of an absl::Status.
//
// The payload's key is the type URL
// ("type.googleapis.com/google.rpc.ErrorInfo"), its value the serialised
// message. So base/rpc/status.h can move payloads to and from the wire without
// knowing their types.
//
// Pure. Thread-safe. Adding to an OK status does nothing.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::rpc {

// The domain of all our ErrorInfos.
inline constexpr absl::string_view kErrorDomain = "atoll.v1";

// The content of an ErrorInfo.
struct ErrorReason {
  std::string reason;  // UPPER_SNAKE_CASE, e.g. "STALE_ISLAND_EPOCH".
  // Values for the reason, e.g. {"island_epoch", "3"}; sorted by name.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// One wrong field of a request.
struct FieldViolation {
  std::string field;        // Path from the request, "spec.inner.batch_size".
  std::string description;  // What is wrong, and what is valid.
};

// Sets the ErrorInfo, replacing any that `status` has.
absl::Status WithReason(absl::Status status, const ErrorReason& reason);

// Adds an ErrorInfo whose reason is the name of the status code, unless
// `status` has a reason or field violations. So every error has a reason.
absl::Status WithDefaultReason(absl::Status status);

// Adds a RetryInfo: the caller should wait at least `delay` (>= 0).
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// Sets the BadRequest, replacing any that `status` has.
absl::Status WithFieldViolations(absl::Status status,
                                 const std::vector<FieldViolation>& violations);

// INVALID_ARGUMENT with every violation in its message and in a BadRequest.
// Requires: `violations` is not empty.
absl::Status InvalidFields(const std::vector<FieldViolation>& violations);

// The detail; null or empty if `status` has none that can be read.
std::optional<ErrorReason> GetReason(const absl::Status& status);
std::optional<absl::Duration> GetRetryDelay(const absl::Status& status);
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

}  // namespace atl::rpc
