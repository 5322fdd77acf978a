// Files that must not exist before. Thread-safe.

#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// Appends all of `bytes` to a file, and syncs it. Errors as ErrnoToStatus.
absl::Status WriteAll(int fd, absl::string_view bytes);

// Makes a file with `bytes`, synced; its name is durable once the directory is
// synced too. A crash may leave a beginning of it, an error nothing.
//
// ALREADY_EXISTS: there is a file, a link or a directory, which stays. Others:
// as ErrnoToStatus.
absl::Status WriteNewFile(const std::string& path, absl::string_view bytes,
                          mode_t mode);

}  // namespace atl
