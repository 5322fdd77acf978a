// Files and directories that only their owner may read.

#pragma once

#include <string>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl::cli {

// Makes the directory for its owner alone; its parents as usual. OK if it is
// there. Errors as ErrnoToStatus.
absl::Status MakePrivateDirectory(const std::string& path);

// As WriteFileAtomically, with a mode that holds from the first byte.
absl::Status WriteFileWithMode(const std::string& path, absl::string_view text,
                               mode_t mode);

}  // namespace atl::cli
