#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/output/error.h"
#include "cli/units/units.h"
#include "cli/volunteer/local_socket.h"
#include "cli/volunteer/local_status.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kFinishLook = absl::Milliseconds(500);

struct LocalOptions {
  std::string command;
  std::string island_id;
  std::string pause_for;
  bool wait = false;
};

// The socket of the island that is meant: the only one that runs, or `wanted`.
absl::StatusOr<std::string> FindSocket(const std::string& directory,
                                       const std::string& wanted) {
  std::vector<std::string> found;
  std::string names;
  absl::Status last;
  for (const std::string& socket : ListLocal(directory)) {
    const absl::StatusOr<Json> status =
        CallLocal(directory, socket, {{"command", "status"}});
    // A socket of a process that was killed.
    if (absl::IsNotFound(status.status())) continue;
    if (!status.ok()) {
      last = status.status();
      continue;
    }
    const std::string island = TextOf(*status, "island_id");
    const std::string name =
        absl::StrCat(TextOf(*status, "run_id"), "/", island);
    if (!wanted.empty() && wanted != island && wanted != name) continue;
    found.push_back(socket);
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    return UsageError(absl::StrCat("several islands run here: ", names),
                      "Choose one with --island RUN/ISLAND.");
  }
  RETURN_IF_ERROR(last);
  return WithHint(
      WithReason(absl::NotFoundError(
                     wanted.empty()
                         ? "no island of this user runs on this machine"
                         : absl::StrCat("no island ", wanted,
                                        " of this user runs on this machine")),
                 "NO_ISLAND"),
      "`atoll join` starts one. Islands are found by their state directory: "
      "is XDG_STATE_HOME the same?");
}

absl::Status Ask(Context& context, const LocalOptions& options) {
  Json request = {{"command", options.command}};
  if (!options.pause_for.empty()) {
    const absl::StatusOr<double> seconds = ParseSeconds(options.pause_for);
    if (!seconds.ok()) return WithContext(seconds.status(), "--for");
    request["seconds"] = *seconds;
  }
  const std::string directory = LocalDirectory(context.state_directory);
  ASSIGN_OR_RETURN(const std::string socket,
                   FindSocket(directory, options.island_id));
  absl::StatusOr<Json> status = CallLocal(directory, socket, request);
  RETURN_IF_ERROR(status.status());
  while (options.wait) {
    absl::SleepFor(kFinishLook);
    absl::StatusOr<Json> later =
        CallLocal(directory, socket, {{"command", "status"}});
    if (absl::IsNotFound(later.status())) break;
    if (later.ok()) status = std::move(later);
  }
  context.output().Print(*status, StatusText(*status, absl::LocalTimeZone()));
  return absl::OkStatus();
}

flags::Command& AddCommand(flags::Command& app, Context& context,
                           const char* name, const char* help,
                           const char* footer,
                           const std::shared_ptr<LocalOptions>& options) {
  flags::Command& command = app.AddCommand(name, help);
  command.Footer(footer);
  options->command = name;
  command.Add("--island", options->island_id,
              "Id of the island, or RUN/ISLAND; default: the only one "
              "that runs");
  SetAction(command, context, Ask, options);
  return command;
}

}  // namespace

void AddLocal(flags::Command& app, Context& context) {
  AddCommand(app, context, "status",
             "Show the state of an island on this machine, and the outcomes of "
             "its contributions",
             "Example:\n  atoll local status",
             std::make_shared<LocalOptions>());
  auto pause = std::make_shared<LocalOptions>();
  AddCommand(
      app, context, "pause", "Stop training until `atoll local resume`",
      "The island leaves the run after two minutes and joins it again later. A\n"
      "strict run waits for it, and it leaves after the run's lease_duration. A\n"
      "restart of the island ends a pause.\n"
      "Example:\n  atoll local pause --for 2h",
      pause)
      .Add("--for", pause->pause_for, "Resume after this time: 30m, 2h");
  AddCommand(app, context, "resume", "End a pause of `atoll local pause`",
             "Example:\n  atoll local resume",
             std::make_shared<LocalOptions>());
  auto finish = std::make_shared<LocalOptions>();
  AddCommand(app, context, "finish",
             "Complete the round in progress, contribute it and leave",
             "Example:\n  atoll local finish --wait", finish)
      .AddFlag("--wait", finish->wait, "Return once the island has left");
}

}  // namespace atl::cli
