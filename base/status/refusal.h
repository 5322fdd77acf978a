// Errors with details that programs read: google.rpc's ErrorInfo, RetryInfo and
// BadRequest, as payloads of an absl::Status.
//
// A payload's key is its type URL
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

namespace atl {

// The content of an ErrorInfo with the domain "atoll.v1".
struct ErrorReason {
  // In UPPER_SNAKE_CASE, from the list in proto/ERRORS.md.
  std::string reason;
  // Values for the reason, e.g. {"island_epoch", "3"}; sorted by name.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// One wrong field of a request.
struct FieldViolation {
  std::string field;        // Path from the request: "spec.inner.batch_size".
  std::string description;  // The fault, and a right value.
};

// An error with `reason`. `message` says what was wrong and what to do.
absl::Status Refuse(absl::StatusCode code, absl::string_view reason,
                    absl::string_view message);

// The same; the caller should retry after `delay` (>= 0).
absl::Status RefuseForNow(absl::StatusCode code, absl::string_view reason,
                          absl::string_view message, absl::Duration delay);

// INVALID_ARGUMENT, INVALID_FIELDS, with every violation in its message and in
// a BadRequest. Requires: `violations` is not empty.
absl::Status InvalidFields(const std::vector<FieldViolation>& violations);

// Sets the ErrorInfo, replacing any that `status` has.
absl::Status WithReason(absl::Status status, const ErrorReason& reason);

// Adds `reason` unless `status` has one.
absl::Status WithReasonIfNone(absl::Status status, absl::string_view reason);

// Adds the name of the status code as the reason unless `status` has one. So
// every error has a reason.
absl::Status WithDefaultReason(absl::Status status);

// True if `reason` is the reason of `status`.
bool HasReason(const absl::Status& status, absl::string_view reason);

// True if the coordinator refuses because its log is older than a peer has seen
// (LOG_BEHIND) or damaged (LOG_DAMAGED). The caller keeps what it has and
// retries until an operator has repaired the coordinator.
bool IsLogFault(const absl::Status& status);

// True if the coordinator refuses because the caller belongs to another cluster
// (OTHER_CLUSTER). No other answer of that coordinator decides anything for the
// caller, which keeps what it has and retries until its own is back.
bool IsOtherCluster(const absl::Status& status);

// True if the same call may succeed later: the peer cannot be reached, does not
// answer, or is full and says when to call again (RESOURCE_EXHAUSTED with a
// RetryInfo). Without a RetryInfo, RESOURCE_EXHAUSTED is a limit that waiting
// does not move.
bool IsAway(const absl::Status& status);

// Adds a RetryInfo: the caller should wait at least `delay` (>= 0).
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// The detail; null or empty if `status` has none that can be read. A delay is
// at most a day.
std::optional<ErrorReason> GetReason(const absl::Status& status);
std::optional<absl::Duration> GetRetryDelay(const absl::Status& status);
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

}  // namespace atl
