#include "cli/commands/run/restore_run.h"

#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/layout/weight_unit.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);

absl::StatusOr<v1::RestoreRunResponse> Restore(
    coordinator::Client& client, const v1::RestoreRunRequest& request) {
  return client.Call(&v1::RunService::Stub::RestoreRun, request);
}

// True if the newest restore went to this cut, and no commit followed it.
bool IsThere(const v1::GetRunStateResponse& state, const v1::Pin& pin) {
  const v1::Restore& newest = state.run().restored();
  return state.run().has_restored() && newest.pin_id() == pin.pin_id() &&
         newest.cut_commit_seq() == pin.commit_seq() &&
         newest.commit_seq() == state.commit_seq();
}

// "round-2: the state after commit 8, kept since 2026-11-28T04:05:06Z".
std::string DescribeCut(const v1::Checkpoint& checkpoint) {
  const v1::Pin& pin = checkpoint.pin();
  std::string text = absl::StrCat(
      pin.pin_id(), ": the state after commit ", pin.commit_seq() - 1);
  if (checkpoint.has_create_time()) {
    absl::StrAppend(&text, ", kept since ",
                    FormatTimestamp(FromProto(checkpoint.create_time())));
  }
  if (pin.suspect()) {
    absl::StrAppend(&text,
                    "; SUSPECT: it holds commits outside the run's band");
  }
  return text;
}

// The cut with the time at which it was pinned, if it is pinned still.
absl::StatusOr<v1::Checkpoint> FindCut(coordinator::Client& client,
                                       const std::string& run_id,
                                       const v1::Pin& pin) {
  ASSIGN_OR_RETURN(std::vector<v1::Checkpoint> kept,
                   client.ListCheckpoints(run_id));
  for (v1::Checkpoint& checkpoint : kept) {
    if (checkpoint.pin().pin_id() == pin.pin_id()) return std::move(checkpoint);
  }
  v1::Checkpoint found;
  *found.mutable_pin() = pin;
  return found;
}

std::string DescribeLoss(const v1::RestoreRunResponse& answer) {
  const absl::string_view unit =
      WeightUnitName(answer.run().spec().weight_unit());
  return absl::StrCat(FormatCount(answer.lost_commit_count()), " commits, ",
                      FormatCount(answer.lost_token_count()), " ", unit);
}

// Reads a line from the terminal. CANCELLED: the stop is requested.
absl::StatusOr<std::string> ReadAnswer(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, static_cast<int>(
                              absl::ToInt64Milliseconds(kTick))) <= 0) {
      continue;
    }
    std::string line;
    std::getline(std::cin, line);
    return line;
  }
  return absl::CancelledError("stopped: nothing has changed");
}

// Why a shard has not the epoch yet.
std::string DescribeServerWait(const v1::ServerState& server) {
  const v1::ShardPlacement& place = server.placement();
  std::string text =
      absl::StrCat("shard ", place.shard(), " on server ", place.server_id());
  return server.alive() ? text : text + ", which is away: start it";
}

// A shard cannot go back to the cut.
absl::Status FailedShard(const v1::ServerState& server, const v1::Run& run) {
  return WithHint(
      WithExitCode(absl::UnavailableError(absl::StrCat(
                       DescribeServerWait(server),
                       " has stopped after the restore: ", server.fault())),
                   ExitCode::kUnhealthy),
      absl::StrCat("`",
                   run.fault().next_command().empty()
                       ? absl::StrCat("atoll run show ", run.run_id())
                       : run.fault().next_command(),
                   "` helps next."));
}

// Asks until every shard has reported: after a start of the coordinator, and
// after another restore, that takes a moment.
absl::StatusOr<v1::RestoreRunResponse> RestoreWithin(
    coordinator::Client& client, const v1::RestoreRunRequest& request,
    absl::Duration patience, Progress& progress, const std::stop_token& stop) {
  const absl::Time end = absl::Now() + patience;
  while (true) {
    absl::StatusOr<v1::RestoreRunResponse> answer = Restore(client, request);
    if (!HasReason(answer.status(), "NOT_REPORTED") || absl::Now() > end ||
        stop.stop_requested()) {
      return answer;
    }
    progress.Update(absl::StrCat("restore ", request.run_id(), "  waits: ",
                                 answer.status().message()),
                    absl::Now());
    absl::SleepFor(kTick);
  }
}

}  // namespace

std::string NextCommand(const v1::Run& run) {
  const bool goes_on = run.state() == v1::RUN_STATE_ACTIVE ||
                       run.state() == v1::RUN_STATE_COMPLETED;
  return absl::StrCat("atoll run ", goes_on ? "watch " : "show ",
                      run.run_id());
}

absl::Status ConfirmRestore(Context& context, const std::string& run_id,
                            bool yes, const std::stop_token& stop) {
  if (yes) return absl::OkStatus();
  if (::isatty(STDIN_FILENO) != 1) {
    return UsageError(
        "the restore is not confirmed, and there is no terminal to ask",
        "Look at what is lost with --dry-run, then add --yes.");
  }
  context.messages() << "Type \"yes\" to restore run " << run_id << ": "
                     << std::flush;
  ASSIGN_OR_RETURN(const std::string answer, ReadAnswer(stop));
  if (absl::StripAsciiWhitespace(answer) == "yes") return absl::OkStatus();
  return absl::CancelledError(
      "the answer was not \"yes\": nothing has changed");
}

absl::StatusOr<v1::GetRunStateResponse> WaitForShards(
    coordinator::Client& client, const v1::Run& run, absl::Duration patience,
    Progress& progress, const std::stop_token& stop) {
  const absl::Time end = absl::Now() + patience;
  std::string waiting;
  while (!stop.stop_requested()) {
    const absl::StatusOr<v1::GetRunStateResponse> state =
        client.GetRunState(run.run_id());
    waiting.clear();
    if (!state.ok()) {
      if (!IsAway(state.status())) return state.status();
      waiting = std::string(state.status().message());
    } else if (state->run().run_uid() != run.run_uid() ||
               state->run().run_epoch() != run.run_epoch()) {
      return absl::AbortedError(absl::StrCat(
          "run ", run.run_id(), " was restored again, or replaced, meanwhile: "
          "`atoll run show ", run.run_id(), "` shows it"));
    } else {
      if (state->servers().empty()) {
        waiting = absl::StrCat("servers: ", state->run().state_reason());
      }
      for (const v1::ServerState& server : state->servers()) {
        // A report of an earlier epoch does not count.
        if (!server.fault().empty()) return FailedShard(server, state->run());
        if (server.persisted_commit_seq() < run.restored().commit_seq()) {
          waiting = DescribeServerWait(server);
        }
      }
      if (waiting.empty()) return state;
    }
    if (absl::Now() > end) break;
    progress.Update(absl::StrCat("restore ", run.run_id(), "  waits for ",
                                 waiting),
                    absl::Now());
    absl::SleepFor(kTick);
  }
  const std::string decided =
      absl::StrCat("the restore is decided, and shards are not there yet: ",
                   waiting);
  const std::string hint =
      "The same command continues to wait; `atoll run show " + run.run_id() +
      "` shows every shard.";
  if (stop.stop_requested()) {
    return WithHint(absl::CancelledError("stopped: " + decided), hint);
  }
  return WithHint(absl::DeadlineExceededError(decided), hint);
}

absl::StatusOr<RestoredRun> RestoreRun(Context& context,
                                       coordinator::Client& client,
                                       const RestoreOptions& options,
                                       Progress& progress,
                                       const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const absl::Duration patience,
                   ParsePatience(options.patience));
  ASSIGN_OR_RETURN(const v1::GetRunStateResponse before,
                   client.GetRunState(options.run_id));
  v1::RestoreRunRequest request;
  request.set_run_id(options.run_id);
  request.set_run_uid(before.run().run_uid());
  request.set_from(options.from);
  request.set_dry_run(true);
  RestoredRun restored;
  ASSIGN_OR_RETURN(restored.answer, RestoreWithin(client, request, patience,
                                                  progress, stop));
  const v1::Pin pin = restored.answer.pin();
  ASSIGN_OR_RETURN(restored.checkpoint, FindCut(client, options.run_id, pin));
  if (options.dry_run) {
    restored.run = before.run();
    restored.is_dry = true;
    restored.next_command = absl::StrCat(
        "atoll run restore ", options.run_id, " --from ",
        options.from.empty() ? pin.pin_id() : options.from);
    return restored;
  }
  // The same command after it was interrupted asks no second time.
  if (!IsThere(before, pin)) {
    context.output().Message(absl::StrCat("run ", options.run_id,
                                          " goes back to ",
                                          DescribeCut(restored.checkpoint)));
    context.output().Message(
        absl::StrCat("loses ", DescribeLoss(restored.answer)));
    RETURN_IF_ERROR(
        ConfirmRestore(context, options.run_id, options.yes, stop));
  }
  request.set_dry_run(false);
  // The cut that was shown, also if a newer one became durable meanwhile.
  if (options.from.empty()) request.set_from(pin.pin_id());
  ASSIGN_OR_RETURN(restored.answer, RestoreWithin(client, request, patience,
                                                  progress, stop));
  const absl::StatusOr<v1::GetRunStateResponse> after = WaitForShards(
      client, restored.answer.run(), patience, progress, stop);
  progress.Clear();
  RETURN_IF_ERROR(after.status());
  restored.run = after->run();
  restored.next_command = NextCommand(restored.run);
  return restored;
}

Json ToJson(const RestoredRun& restored) {
  const v1::Run& run = restored.run;
  const v1::RestoreRunResponse& answer = restored.answer;
  const v1::Pin& pin = answer.pin();
  Json data;
  data["run_id"] = run.run_id();
  data["run_uid"] = run.run_uid();
  data["state"] = EnumName(run.state());
  data["run_epoch"] = absl::StrCat(run.run_epoch());
  data["pin_id"] = pin.pin_id();
  data["cut_commit_seq"] = absl::StrCat(pin.commit_seq());
  data["suspect"] = pin.suspect();
  data["lost_commit_count"] = absl::StrCat(answer.lost_commit_count());
  data["lost_token_count"] = absl::StrCat(answer.lost_token_count());
  data["changed"] = answer.changed();
  data["next_command"] = restored.next_command;
  return data;
}

std::string ToText(const RestoredRun& restored) {
  const v1::Run& run = restored.run;
  Fields fields;
  fields.Add("run", run.run_id());
  fields.Add("state", EnumName(run.state()));
  if (!run.state_reason().empty()) fields.AddText("why", run.state_reason());
  fields.AddText("cut", DescribeCut(restored.checkpoint));
  const std::string loss = DescribeLoss(restored.answer);
  if (restored.is_dry) fields.AddText("would be lost", loss);
  if (restored.answer.changed()) fields.AddText("lost", loss);
  if (!restored.is_dry) {
    fields.Add("epoch", absl::StrCat(run.run_epoch()));
    fields.AddText("islands",
                   "those that live continue from the cut by themselves");
  }
  fields.Add("next command", restored.next_command);
  return fields.ToString();
}

}  // namespace atl::cli
