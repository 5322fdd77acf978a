// What the programs that serve have in common: a command line that ends with
// the same exit codes, what the system lets them have, and a last word.

#ifndef BASE_OBS_PROGRAM_H_
#define BASE_OBS_PROGRAM_H_

#include <cstdint>
#include <optional>

#include "CLI/App.hpp"
#include "absl/status/status.h"

namespace atl {

// Adds --version to `app` and reads the command line with it, whose flags may
// be spelt with dashes or underscores. The exit code if
// the program is over: 0 after --help and --version, 2 after a wrong command
// line, which stderr is told.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

// Lets the process have as many open files as the system allows it, and
// returns how many that are. The log has it if they are few for a program that
// serves: each connection is one, each log segment and version's file another.
uint64_t RaiseOpenFileLimit();

// Tells stderr why `app` ends, if `status` is not OK, and gives the exit code
// (base/status/exit_code.h).
int EndProgram(const CLI::App& app, const absl::Status& status);

}  // namespace atl

#endif  // BASE_OBS_PROGRAM_H_
