// A run file on the command line, and what else the line says of the run.

#pragma once

#include <string>

#include "CLI/App.hpp"
#include "cli/run_file/load.h"

namespace atl::cli {

// Adds FILE and the flags that change what it says to `command`. `file` and
// `changes` must outlive the parse.
void AddRunFileFlags(CLI::App& command, std::string& file,
                     RunFileChanges& changes);

}  // namespace atl::cli
