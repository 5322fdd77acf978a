// Functions that all servers share: command line, open-file limit, exit code.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace atl {

// Writes help texts with at most 80 columns (WrapHelp).
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// Adds --version to `app` and parses the command line, whose flags may be spelt
// with dashes or underscores. Returns an exit code if the program must end: 0
// after --help and --version, 2 after a wrong command line (reported to
// stderr).
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

// Raises the process's limit of open files to the hard limit, and returns it.
// Logs a warning if it is low for a server: each connection, log segment and
// version's file needs one.
uint64_t RaiseOpenFileLimit();

// Reports an error in `status` to stderr, and returns the exit code
// (base/status/exit_code.h).
int EndProgram(const CLI::App& app, const absl::Status& status);

}  // namespace atl
