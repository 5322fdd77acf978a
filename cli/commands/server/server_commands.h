// The subcommands of `atoll server`.
//
// Each function adds a subcommand to `app`; parsing it sets context.action.
// Both outlive the parse and the action.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddServerReplace(flags::Command& app, Context& context);

}  // namespace atl::cli
