// Adds context to errors, and makes errors of errno.
//
// Pure. Thread-safe.

#ifndef BASE_STATUS_ANNOTATE_H_
#define BASE_STATUS_ANNOTATE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// `status` with "context: " before its message, payloads kept; OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// The status of a failed system call: ENOSPC and EDQUOT are
// RESOURCE_EXHAUSTED, EIO is DATA_LOSS, ENOENT NOT_FOUND, EEXIST
// ALREADY_EXISTS, EACCES and EPERM PERMISSION_DENIED, the rest UNKNOWN.
// `what` says what was tried ("write /a/b").
absl::Status ErrnoToStatus(int error_number, absl::string_view what);

}  // namespace atl

#endif  // BASE_STATUS_ANNOTATE_H_
