// The subcommands of `atoll run`, one source file each.
//
// Each function adds a subcommand to `app`; parsing it sets context.action.
// Both outlive the parse and the action.

#pragma once

#include "CLI/App.hpp"
#include "cli/context.h"

namespace atl::cli {

void AddRunCreate(CLI::App& app, Context& context);
void AddRunList(CLI::App& app, Context& context);
void AddRunShow(CLI::App& app, Context& context);
void AddRunWatch(CLI::App& app, Context& context);
void AddRunPause(CLI::App& app, Context& context);
void AddRunResume(CLI::App& app, Context& context);
void AddRunCancel(CLI::App& app, Context& context);
void AddRunDelete(CLI::App& app, Context& context);
void AddRunExport(CLI::App& app, Context& context);
void AddRunImport(CLI::App& app, Context& context);
void AddRunPin(CLI::App& app, Context& context);

}  // namespace atl::cli
