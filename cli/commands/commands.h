// The subcommands, one source file each.
//
// Each function adds a subcommand to `app`; parsing it sets context.action.
// Both outlive the parse and the action.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddIslandList(flags::Command& app, Context& context);
void AddIslandStatus(flags::Command& app, Context& context);
void AddIslandRemove(flags::Command& app, Context& context);
void AddIslandReadmit(flags::Command& app, Context& context);
void AddRoundList(flags::Command& app, Context& context);
void AddMetrics(flags::Command& app, Context& context);

void AddReplay(flags::Command& app, Context& context);
void AddJoin(flags::Command& app, Context& context);
void AddLocal(flags::Command& app, Context& context);
void AddPlan(flags::Command& app, Context& context);

void AddDataTokenize(flags::Command& app, Context& context);
void AddDataPublish(flags::Command& app, Context& context);
void AddDataServe(flags::Command& app, Context& context);
void AddDataAllow(flags::Command& app, Context& context);

void AddDevUp(flags::Command& app, Context& context);
void AddDevBaseline(flags::Command& app, Context& context);
void AddDevReport(flags::Command& app, Context& context);

void AddEval(flags::Command& app, Context& context);
void AddGenerate(flags::Command& app, Context& context);
void AddSettings(flags::Command& app, Context& context);
void AddVersion(flags::Command& app, Context& context);

// Adds all subcommands, in their groups.
void AddCommands(flags::Command& app, Context& context);

}  // namespace atl::cli
