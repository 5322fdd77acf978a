// `atoll doctor`: checks before the work.

#pragma once

#include "CLI/App.hpp"
#include "cli/context.h"

namespace atl::cli {

void AddDoctor(CLI::App& app, Context& context);

}  // namespace atl::cli
