// The subcommands of `atoll run`, one source file each.
//
// Each function adds a subcommand to `app`; parsing it sets context.action.
// Both outlive the parse and the action.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddRunCreate(flags::Command& app, Context& context);
void AddRunList(flags::Command& app, Context& context);
void AddRunShow(flags::Command& app, Context& context);
void AddRunWatch(flags::Command& app, Context& context);
void AddRunPause(flags::Command& app, Context& context);
void AddRunResume(flags::Command& app, Context& context);
void AddRunCancel(flags::Command& app, Context& context);
void AddRunDelete(flags::Command& app, Context& context);
void AddRunExport(flags::Command& app, Context& context);
void AddRunImport(flags::Command& app, Context& context);
void AddRunPin(flags::Command& app, Context& context);
void AddRunRestore(flags::Command& app, Context& context);

}  // namespace atl::cli
