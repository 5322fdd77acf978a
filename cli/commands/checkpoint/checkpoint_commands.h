// The subcommands of `atoll checkpoint`, one source file each. They read a
// mirror (base/mirror) and need no cluster.
//
// Each function adds a subcommand to `app`; parsing it sets context.action.
// Both outlive the parse and the action.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddCheckpointList(flags::Command& app, Context& context);
void AddCheckpointShow(flags::Command& app, Context& context);
void AddCheckpointVerify(flags::Command& app, Context& context);
void AddCheckpointExport(flags::Command& app, Context& context);

}  // namespace atl::cli
