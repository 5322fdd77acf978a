// The run file argument and the flags that override parts of it.

#pragma once

#include <string>

#include "base/flags/flags.h"
#include "cli/run_file/load.h"

namespace atl::cli {

// Adds FILE and the overriding flags to `command`. `file` and `changes` must
// outlive the parse.
void AddRunFileFlags(flags::Command& command, std::string& file,
                     RunFileChanges& changes);

}  // namespace atl::cli
