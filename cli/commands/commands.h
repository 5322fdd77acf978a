// The subcommands, one source file each. `doctor` has a folder of its own, as
// have the commands of `run`.
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
void AddDoctor(flags::Command& app, Context& context);

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
