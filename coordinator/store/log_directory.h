// Directories without a coordinator's log: decides whether a log may be made in
// one, and makes the error of a start on one. Looks at names and changes
// nothing. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace atl::coordinator {

// The file in a data directory that says that an operator has a copy of the
// log's secret.
inline constexpr char kSecretExportedName[] = "secret-exported";

// OK if a log may be made in `directory`: it is missing or empty, or holds a
// database (whose rows then decide), or what an interrupted attempt left.
// "lost+found" and directories without files do not count.
//
// FAILED_PRECONDITION: it holds another file, which the message names, or is no
// directory.
// PERMISSION_DENIED: it cannot be read.
absl::Status CheckFreeForLog(const std::string& directory);

// The error of a start on `directory`, which has no log: FAILED_PRECONDITION.
// Names the command that makes one, and a log in a directory nearby.
absl::Status NoLogError(const std::string& directory);

}  // namespace atl::coordinator
