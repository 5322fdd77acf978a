// The subcommands, one source file each.
//
// Each function adds a subcommand to `app`; parsing it sets context.action.
// Both outlive the parse and the action.

#pragma once

#include "CLI/App.hpp"
#include "cli/context.h"

namespace atl::cli {

void AddIslandList(CLI::App& app, Context& context);
void AddIslandStatus(CLI::App& app, Context& context);
void AddIslandRemove(CLI::App& app, Context& context);
void AddIslandReadmit(CLI::App& app, Context& context);
void AddRoundList(CLI::App& app, Context& context);
void AddMetrics(CLI::App& app, Context& context);

void AddReplay(CLI::App& app, Context& context);
void AddJoin(CLI::App& app, Context& context);
void AddLocal(CLI::App& app, Context& context);
void AddPlan(CLI::App& app, Context& context);

void AddDataTokenize(CLI::App& app, Context& context);
void AddDataPublish(CLI::App& app, Context& context);
void AddDataServe(CLI::App& app, Context& context);
void AddDataAllow(CLI::App& app, Context& context);

void AddDevUp(CLI::App& app, Context& context);
void AddDevBaseline(CLI::App& app, Context& context);
void AddDevReport(CLI::App& app, Context& context);

void AddEval(CLI::App& app, Context& context);
void AddGenerate(CLI::App& app, Context& context);
void AddSettings(CLI::App& app, Context& context);
void AddVersion(CLI::App& app, Context& context);

// Adds all subcommands, in their groups.
void AddCommands(CLI::App& app, Context& context);

}  // namespace atl::cli
