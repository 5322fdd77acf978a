// Adds context to errors, and converts errno. Pure.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// `status` with "context: " before its message. Code and payloads stay; OK
// stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Converts the errno of a file or socket call. The message is "context: " and
// the text of the error.
//
//   ENOSPC, EDQUOT: the disk is full             RESOURCE_EXHAUSTED
//   EIO, EUCLEAN                                 DATA_LOSS
//   ENOENT, ENOTDIR                              NOT_FOUND
//   EEXIST                                       ALREADY_EXISTS
//   EACCES, EPERM, EROFS                         PERMISSION_DENIED
//   EINVAL, EISDIR, ENAMETOOLONG                 INVALID_ARGUMENT
//   ENOTEMPTY, EBUSY                             FAILED_PRECONDITION
//   EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM,
//   EFBIG, ECONNREFUSED, ECONNRESET,
//   EADDRINUSE, ENETUNREACH, EHOSTUNREACH        UNAVAILABLE
//   any other                                    UNKNOWN
absl::Status ErrnoToStatus(int error_number, absl::string_view context);

}  // namespace atl
