// `atoll doctor`: checks before the work.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddDoctor(flags::Command& app, Context& context);

}  // namespace atl::cli
