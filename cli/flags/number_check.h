// Checks of numbers on the command line. A failed check is one short sentence.
//
// Pure. Thread-safe.

#ifndef CLI_FLAGS_NUMBER_CHECK_H_
#define CLI_FLAGS_NUMBER_CHECK_H_

#include "CLI/CLI.hpp"

namespace atl::cli {

// A finite number above 0.
CLI::Validator Positive();

// A finite number, at least 0.
CLI::Validator NotNegative();

}  // namespace atl::cli

#endif  // CLI_FLAGS_NUMBER_CHECK_H_
