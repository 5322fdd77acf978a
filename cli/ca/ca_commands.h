// The subcommands of `atoll ca`, as those of cli/commands/commands.h.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddCaInit(flags::Command& app, Context& context);
void AddCaIssue(flags::Command& app, Context& context);
void AddCaRenew(flags::Command& app, Context& context);
void AddCaList(flags::Command& app, Context& context);
void AddCaRevoke(flags::Command& app, Context& context);
void AddCaPublish(flags::Command& app, Context& context);

}  // namespace atl::cli
