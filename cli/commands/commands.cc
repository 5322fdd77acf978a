#include "cli/commands/commands.h"

#include "absl/strings/str_cat.h"
#include "cli/commands/run/run_commands.h"

namespace atl::cli {

void AddCommands(CLI::App& app, Context& context) {
  const auto group = [&](const char* name, const char* help) -> CLI::App& {
    CLI::App* result = app.add_subcommand(name, help);
    result->require_subcommand(1);
    result->fallthrough();
    result->footer(absl::StrCat("`atoll ", name,
                                " COMMAND --help` has an example of each."));
    return *result;
  };
  CLI::App& run = group("run", "Create runs, watch and steer them");
  AddRunCreate(run, context);
  AddRunList(run, context);
  AddRunShow(run, context);
  AddRunWatch(run, context);
  AddRunPause(run, context);
  AddRunResume(run, context);
  AddRunCancel(run, context);
  AddRunExport(run, context);
  AddRunImport(run, context);
  AddRunPin(run, context);
  CLI::App& island = group("island", "The islands of a run");
  AddIslandList(island, context);
  AddIslandRemove(island, context);
  AddIslandReadmit(island, context);
  AddRoundList(group("round", "The committed rounds of a run"), context);
  AddReplay(app, context);
  AddJoin(app, context);
  AddPlan(app, context);
  AddDataTokenize(group("data", "What islands read"), context);
  CLI::App& dev = group("dev", "Everything on one machine");
  AddDevUp(dev, context);
  AddDevBaseline(dev, context);
  AddDevReport(dev, context);
  AddEval(app, context);
  AddGenerate(app, context);
  AddSettings(app, context);
  AddVersion(app, context);
}

}  // namespace atl::cli
