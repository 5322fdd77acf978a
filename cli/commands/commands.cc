#include "cli/commands/commands.h"

#include "absl/strings/str_cat.h"
#include "cli/ca/ca_commands.h"
#include "cli/commands/checkpoint/checkpoint_commands.h"
#include "cli/commands/run/run_commands.h"
#include "cli/commands/server/server_commands.h"
#include "cli/doctor/doctor.h"
#include "cli/enrol/enrol_commands.h"

namespace atl::cli {

void AddCommands(flags::Command& app, Context& context) {
  const auto group = [&](const char* name,
                         const char* help) -> flags::Command& {
    return app.AddCommand(name, help)
        .RequireCommand()
        .FallThrough()
        .Footer(absl::StrCat("`atoll ", name,
                             " COMMAND --help` shows an example."));
  };
  flags::Command& run = group("run", "Create, watch and steer runs");
  AddRunCreate(run, context);
  AddRunList(run, context);
  AddRunShow(run, context);
  AddRunWatch(run, context);
  AddRunPause(run, context);
  AddRunResume(run, context);
  AddRunCancel(run, context);
  AddRunDelete(run, context);
  AddRunExport(run, context);
  AddRunImport(run, context);
  AddRunPin(run, context);
  AddRunRestore(run, context);
  flags::Command& checkpoint =
      group("checkpoint", "Read checkpoints of a mirror, without a cluster");
  AddCheckpointList(checkpoint, context);
  AddCheckpointShow(checkpoint, context);
  AddCheckpointVerify(checkpoint, context);
  AddCheckpointExport(checkpoint, context);
  AddServerReplace(group("server", "Replace servers whose disk is lost"),
                   context);
  flags::Command& island =
      group("island", "List, show, remove and revoke islands");
  AddIslandList(island, context);
  AddIslandStatus(island, context);
  AddIslandRemove(island, context);
  AddIslandReadmit(island, context);
  AddIslandRevoke(island, context);
  flags::Command& token =
      group("token", "Make join strings, list and revoke them");
  AddTokenCreate(token, context);
  AddTokenList(token, context);
  AddTokenRevoke(token, context);
  AddRoundList(group("round", "List the committed rounds of a run"), context);
  AddMetrics(app, context);
  AddAudit(app, context);
  AddReplay(app, context);
  AddJoin(app, context);
  AddEnrol(app, context);
  AddLocal(group("local", "Steer the islands that run on this machine"),
           context);
  AddDoctor(app, context);
  AddPlan(app, context);
  flags::Command& data = group("data", "Prepare and publish training data");
  AddDataTokenize(data, context);
  AddDataPublish(data, context);
  AddDataServe(data, context);
  AddDataAllow(data, context);
  flags::Command& ca = group("ca", "Make the certificates of mutual TLS");
  AddCaInit(ca, context);
  AddCaIssue(ca, context);
  AddCaRenew(ca, context);
  AddCaList(ca, context);
  AddCaRevoke(ca, context);
  AddCaPublish(ca, context);
  flags::Command& dev = group("dev", "Run a whole system on this machine");
  AddDevUp(dev, context);
  AddDevBaseline(dev, context);
  AddDevReport(dev, context);
  AddEval(app, context);
  AddGenerate(app, context);
  AddSettings(app, context);
  AddVersion(app, context);
}

}  // namespace atl::cli
