// The subcommands of `atoll ca`, as those of cli/commands/commands.h.

#pragma once

#include "CLI/App.hpp"
#include "cli/context.h"

namespace atl::cli {

void AddCaInit(CLI::App& app, Context& context);
void AddCaIssue(CLI::App& app, Context& context);
void AddCaRenew(CLI::App& app, Context& context);
void AddCaPublish(CLI::App& app, Context& context);

}  // namespace atl::cli
