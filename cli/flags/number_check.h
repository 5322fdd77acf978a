// Checks of numbers on the command line. A failed check is one short sentence.
//
// Pure. Thread-safe.

#pragma once

#include "CLI/CLI.hpp"

namespace atl::cli {

// A finite number above 0.
CLI::Validator Positive();

// A finite number, at least 0.
CLI::Validator NotNegative();

}  // namespace atl::cli
