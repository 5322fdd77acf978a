// --threads: how many threads a command computes with.

#pragma once

#include "CLI/App.hpp"

namespace atl::cli {

// Adds the flag to `command`: 0 to 256.
void AddThreadsFlag(CLI::App& command, int& threads);

// What the flag's value means: 0 is all that the machine has.
int ChooseThreadCount(int threads);

}  // namespace atl::cli
