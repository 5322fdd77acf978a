// Errors with a machine-readable reason: google.rpc.ErrorInfo with the domain
// "atoll.v1", and google.rpc.RetryInfo, as payloads under their type URLs.
// base/rpc sends them on the wire. Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl {

// An error with `reason`, in UPPER_SNAKE_CASE, from the list in
// proto/DESIGN.md, Errors. `message` says what was wrong and what to do.
absl::Status Refuse(absl::StatusCode code, absl::string_view reason,
                    absl::string_view message);

// The same; the caller should retry after `delay` (>= 0).
absl::Status RefuseForNow(absl::StatusCode code, absl::string_view reason,
                          absl::string_view message, absl::Duration delay);

// Adds `reason` unless `status` is OK or has one.
absl::Status WithReasonIfNone(absl::Status status, absl::string_view reason);

}  // namespace atl
