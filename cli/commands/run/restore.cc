// atoll run restore: goes back to a pinned cut, in place.
#include <memory>
#include <stop_token>

#include "base/status/status_macros.h"
#include "cli/commands/run/restore_run.h"
#include "cli/commands/run/run_commands.h"
#include "cli/interrupt.h"
#include "cli/output/progress.h"

namespace atl::cli {
namespace {

absl::Status Run(Context& context, const RestoreOptions& options) {
  Interrupt interrupt;
  const std::stop_token stop = interrupt.first();
  Progress progress(context.progress_options, context.messages());
  ASSIGN_OR_RETURN(auto client, context.MakeClient({stop, &progress}));
  ASSIGN_OR_RETURN(const RestoredRun restored,
                   RestoreRun(context, *client, options, progress, stop));
  progress.Clear();
  context.output().Print(ToJson(restored), ToText(restored));
  return absl::OkStatus();
}

}  // namespace

void AddRunRestore(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "restore", "Go back to a checkpoint, in place, and train on from there");
  command.Footer(
      "Says what is lost and asks. Then the run has the parameters and the "
      "state of\n"
      "that commit; islands that live continue by themselves. Outcomes of "
      "later\n"
      "commits no longer count. The same command continues after an "
      "interruption.\n"
      "Examples:\n  atoll run restore laptop --dry-run\n"
      "  atoll run restore laptop --from round-40");
  auto options = std::make_shared<RestoreOptions>();
  command.Add("run", options->run_id, "Id of the run").Required();
  command.Add("--from", options->from,
              "Checkpoint, or commit:N for the state after commit N; default: "
              "the newest checkpoint that every server holds");
  command.AddFlag("--dry-run", options->dry_run, "Only say what would be lost");
  command.AddFlag("--yes", options->yes, "Do not ask");
  command
      .Add("--patience", options->patience,
           "Longest time to wait for the servers: 30s, 5m")
      .ShowDefault();
  SetAction(command, context, Run, options);
}

}  // namespace atl::cli
