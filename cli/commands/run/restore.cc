// atoll run restore: goes back to a pinned cut, in place, or continues a run of
// a mirror.
#include <memory>
#include <stop_token>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/adopt_run.h"
#include "cli/commands/run/restore_run.h"
#include "cli/commands/run/run_commands.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"

namespace atl::cli {
namespace {

struct Options {
  RestoreOptions restore;  // Its run_id is the argument, which may be a URL.
  std::string run_id;
  std::string run_uid;
  int server_count = 0;
};

absl::Status CheckFlags(const Options& options, bool is_mirror) {
  if (is_mirror && options.run_id.empty()) {
    return UsageError(
        "--run-id is missing: a mirror may have several runs",
        absl::StrCat("`atoll checkpoint list ", options.restore.run_id,
                     "` shows them."));
  }
  if (is_mirror || (options.run_id.empty() && options.run_uid.empty() &&
                    options.server_count == 0)) {
    return absl::OkStatus();
  }
  return UsageError(
      absl::StrCat("'", options.restore.run_id,
                   "' is not the URL of a mirror: --run-id, --run-uid and "
                   "--server-count are for a run in a mirror"),
      "A run of the cluster goes back in place, on its own servers.");
}

absl::Status Run(Context& context, const Options& options) {
  const bool is_mirror = absl::StrContains(options.restore.run_id, "://");
  RETURN_IF_ERROR(CheckFlags(options, is_mirror));
  Interrupt interrupt;
  const std::stop_token stop = interrupt.first();
  Progress progress(context.progress_options, context.messages());
  if (is_mirror) {
    const RestoreOptions& given = options.restore;
    AdoptOptions adopt;
    adopt.url = given.run_id;
    adopt.run_id = options.run_id;
    adopt.run_uid = options.run_uid;
    adopt.from = given.from;
    adopt.server_count = options.server_count;
    adopt.dry_run = given.dry_run;
    adopt.yes = given.yes;
    adopt.patience = given.patience;
    ASSIGN_OR_RETURN(const AdoptedRun adopted,
                     AdoptRun(context, adopt, progress, stop));
    progress.Clear();
    context.output().Print(ToJson(adopted), ToText(adopted));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(auto client, context.MakeClient({stop, &progress}));
  ASSIGN_OR_RETURN(
      const RestoredRun restored,
      RestoreRun(context, *client, options.restore, progress, stop));
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
      "With a mirror's URL a cluster that does not have the run continues it, "
      "on\n"
      "another number of servers if you like. Coordinator and servers need "
      "that\n"
      "--mirror. Islands join again, with join strings or certificates of this\n"
      "cluster, and with new directories.\n"
      "Examples:\n  atoll run restore laptop --dry-run\n"
      "  atoll run restore laptop --from round-40\n"
      "  atoll run restore s3://models/atoll --run-id laptop --server-count 3");
  auto options = std::make_shared<Options>();
  RestoreOptions& restore = options->restore;
  command
      .Add("run", restore.run_id,
           "Id of the run; or s3://BUCKET/PREFIX or file:///DIR, a mirror "
           "that has it")
      .Required();
  command.Add("--from", restore.from,
              "Checkpoint, or commit:N for the state after commit N; default: "
              "the newest checkpoint that every server holds");
  command.Add("--run-id", options->run_id, "Id of the run in the mirror");
  command.Add("--run-uid", options->run_uid,
              "Its run_uid, if runs of the mirror have the same id");
  command
      .Add("--server-count", options->server_count,
           "Servers that get its shards; default: as many as before")
      .Check(flags::Range(1, 256));
  command.AddFlag("--dry-run", restore.dry_run, "Only say what would be lost");
  command.AddFlag("--yes", restore.yes, "Do not ask");
  command
      .Add("--patience", restore.patience,
           "Longest time to wait for the servers: 30s, 5m")
      .ShowDefault();
  SetAction(command, context, Run, options);
}

}  // namespace atl::cli
