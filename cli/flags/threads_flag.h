// --threads: how many threads a command computes with.

#pragma once

#include "base/flags/flags.h"

namespace atl::cli {

// Adds the flag to `command`: 0 to 256.
void AddThreadsFlag(flags::Command& command, int& threads);

// The thread count for the flag's value; 0: ProcessorCount().
int ChooseThreadCount(int threads);

}  // namespace atl::cli
