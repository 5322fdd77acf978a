// atoll server replace: restores the runs of a server whose disk is lost.
#include <algorithm>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/restore_run.h"
#include "cli/commands/server/server_commands.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "coordinator/client/client.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);
// The coordinator notices within its lease that a server has ended.
constexpr absl::Duration kNoticeMax = absl::Seconds(15);

struct ReplaceOptions {
  std::string server_id;
  std::string with;  // Empty: another directory of the same server.
  bool yes = false;
  std::string patience = "10m";
};

// Returns the next event that the command waits for; empty: none.
std::string DescribeWait(const v1::ReplaceServerResponse& answer) {
  if (!answer.registered()) {
    return absl::StrCat(
        "server ", answer.server_id(),
        " to register: start it, with an empty --data-dir or an older copy");
  }
  for (const v1::ReplacedRun& run : answer.runs()) {
    if (!run.reported()) {
      return absl::StrCat("server ", answer.server_id(),
                          " to report its shard of run ", run.run_id());
    }
  }
  return "";
}

bool HasLost(const v1::ReplaceServerResponse& answer) {
  return std::any_of(answer.runs().begin(), answer.runs().end(),
                     [](const v1::ReplacedRun& run) { return run.lost(); });
}

// Waits until the server that has the shards now has reported all of them.
absl::StatusOr<v1::ReplaceServerResponse> WaitForServer(
    coordinator::Client& client, const ReplaceOptions& options,
    absl::Duration patience, Progress& progress, const std::stop_token& stop) {
  v1::ReplaceServerRequest request;
  request.set_server_id(options.server_id);
  request.set_with_server_id(options.with);
  const absl::Time begin = absl::Now();
  bool was_away = !options.with.empty();
  std::string wait;
  while (!stop.stop_requested()) {
    const absl::StatusOr<v1::ReplaceServerResponse> answer =
        client.Call(&v1::RunService::Stub::ReplaceServer, request);
    const absl::Duration waited = absl::Now() - begin;
    if (HasReason(answer.status(), "SERVER_ALIVE") && waited < kNoticeMax) {
      wait = std::string(answer.status().message());
    } else if (!answer.ok()) {
      if (!IsAway(answer.status())) return answer.status();
      wait = std::string(answer.status().message());
    } else {
      was_away |= !answer->registered();
      wait = DescribeWait(*answer);
      if (wait.empty()) {
        if (was_away || HasLost(*answer) || waited >= kNoticeMax) {
          return answer;
        }
        wait = absl::StrCat("the coordinator to notice whether server ",
                            options.server_id, " has ended");
      }
    }
    if (waited > patience) break;
    progress.Update(absl::StrCat("replace ", options.server_id, "  waits for ",
                                 wait),
                    absl::Now());
    absl::SleepFor(kTick);
  }
  const std::string hint = "The same command continues.";
  if (stop.stop_requested()) {
    return WithHint(absl::CancelledError("stopped while it waited for " + wait),
                    hint);
  }
  return WithHint(absl::DeadlineExceededError("still waits for " + wait), hint);
}

// Adds what helps if no cut of the run is whole.
absl::Status ExplainLoss(const absl::Status& status,
                         const std::string& run_id) {
  if (!HasReason(status, "NO_CHECKPOINT") &&
      !HasReason(status, "NOT_DURABLE")) {
    return status;
  }
  return WithHint(
      status,
      absl::StrCat(
          "Without a mirror that has a checkpoint, and without a copy of the "
          "server's directory, run ",
          run_id,
          " cannot continue. If the message names a cut that is durable on every "
          "shard, `atoll run restore ",
          run_id,
          " --from ID` goes back to it. If there is a copy of the directory, "
          "start the server with it and type this command again. Otherwise "
          "begin again from the newest export: `atoll run create FILE --run-id "
          "NEW`, with `import` in [init], then `atoll run import NEW --model "
          "DIR`."));
}

absl::Status Replace(Context& context, const ReplaceOptions& options) {
  Interrupt interrupt;
  const std::stop_token stop = interrupt.first();
  ASSIGN_OR_RETURN(const absl::Duration patience,
                   ParsePatience(options.patience));
  Progress progress(context.progress_options, context.messages());
  ASSIGN_OR_RETURN(auto client, context.MakeClient({stop, &progress}));
  ASSIGN_OR_RETURN(
      const v1::ReplaceServerResponse answer,
      WaitForServer(*client, options, patience, progress, stop));
  progress.Clear();
  Json runs = Json::array();
  std::string text;
  // The others are restored all the same.
  absl::Status failed;
  for (const v1::ReplacedRun& run : answer.runs()) {
    if (!run.lost()) continue;
    RestoreOptions restore;
    restore.run_id = run.run_id();
    restore.yes = options.yes;
    restore.patience = options.patience;
    const absl::StatusOr<RestoredRun> restored =
        RestoreRun(context, *client, restore, progress, stop);
    progress.Clear();
    if (absl::IsCancelled(restored.status())) return restored.status();
    if (!restored.ok()) {
      if (!failed.ok()) {
        context.output().Message(absl::StrCat("run ", run.run_id(), ": ",
                                              restored.status().message()));
      }
      failed.Update(ExplainLoss(restored.status(), run.run_id()));
      continue;
    }
    runs.push_back(ToJson(*restored));
    absl::StrAppend(&text, text.empty() ? "" : "\n", ToText(*restored));
  }
  RETURN_IF_ERROR(failed);
  Json data;
  data["server_id"] = answer.server_id();
  data["runs"] = runs;
  if (text.empty()) {
    text = absl::StrCat(
        "server ", answer.server_id(),
        " has what its runs need: nothing was restored. If its process ended "
        "just now, type the command again.\n");
  }
  context.output().Print(data, text);
  return absl::OkStatus();
}

}  // namespace

void AddServerReplace(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "replace", "Continue after a server's data directory is lost");
  command.Footer(
      "Accepts the next process of the server with an empty data directory, or "
      "with an\n"
      "older copy of its own. Then each run that needs it goes back to the "
      "newest whole\n"
      "checkpoint: from the servers' disks, and from the mirror for what is "
      "lost. Says\n"
      "what is lost and asks. The same command continues after an "
      "interruption.\n"
      "Examples:\n  atoll server replace server-1\n"
      "  atoll server replace server-1 --with server-3");
  auto options = std::make_shared<ReplaceOptions>();
  command.Add("server", options->server_id, "Id of the server").Required();
  command.Add("--with", options->with,
              "A live server that gets its shards; default: the same server, "
              "started again");
  command.AddFlag("--yes", options->yes, "Do not ask");
  command
      .Add("--patience", options->patience,
           "Longest time to wait for the server, and for each run: 30s, 5m")
      .ShowDefault();
  SetAction(command, context, Replace, options);
}

}  // namespace atl::cli
