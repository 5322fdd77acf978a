// The command line of a command, as it was given. Pure.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "CLI/App.hpp"

namespace atl::cli {

// The flags that were given to a parsed `command` and to its parents, as
// "--name=value" or "--name". Leaves out positional arguments, and the flags
// whose names, without dashes, are in `left_out`.
std::vector<std::string> GivenFlags(const CLI::App& command,
                                    const std::set<std::string>& left_out);

}  // namespace atl::cli
