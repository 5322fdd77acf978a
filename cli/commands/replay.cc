// atoll replay: recomputes the versions after a pin and compares digests.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/layout/layout.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/run/checkpoints.h"
#include "cli/flags/compute_flags.h"
#include "cli/flags/server_wait.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "server/client/kept_client.h"
#include "server/client/parameter_client.h"
#include "server/replay/replay.h"

namespace atl::cli {
namespace {

struct ReplayFlags {
  std::string run_id;
  std::string pin_id;
  int64_t to = 0;  // 0: the newest.
  int threads = 0;
  std::string patience = "60s";
};

absl::Status CannotReplay(const std::string& message,
                          const std::string& reason) {
  return WithReason(absl::FailedPreconditionError(message), reason);
}

absl::StatusOr<v1::Pin> FindPin(coordinator::Client& client,
                                const ReplayFlags& flags) {
  ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint,
                   FindCheckpoint(client, flags.run_id, flags.pin_id));
  if (checkpoint.pin().keep_bytes_max() == 0) {
    return WithHint(
        CannotReplay(
            absl::StrCat("pin ", flags.pin_id, " keeps no contributions"),
            "NOTHING_IS_KEPT"),
        absl::StrCat("atoll run pin ", flags.run_id,
                     " --id NAME --keep-mb N makes a pin that keeps later "
                     "contributions"));
  }
  if (checkpoint.shards_size() > 0) {
    const v1::CheckpointShard& shard = checkpoint.shards(0);
    return CannotReplay(absl::StrCat("pin ", flags.pin_id, " on shard ",
                                     shard.shard(), ": ", shard.fault()),
                        "GIVEN_UP");
  }
  return checkpoint.pin();
}

absl::StatusOr<std::vector<v1::Round>> ListDecisions(
    Context& context, coordinator::Client& client, const ReplayFlags& flags,
    const v1::Pin& pin) {
  std::vector<v1::Round> rounds;
  int64_t beyond = 0;  // Commits whose contributions were not kept.
  RETURN_IF_ERROR(client.ForEachRound(
      flags.run_id, pin.commit_seq() - 1,
      [&](v1::Round&& round) -> absl::StatusOr<bool> {
        if (flags.to > 0 && round.commit_seq() > flags.to) return false;
        if (pin.keep_end() > 0 && round.commit_seq() >= pin.keep_end()) {
          ++beyond;
        } else {
          rounds.push_back(std::move(round));
        }
        return true;
      }));
  if (beyond > 0) {
    const std::string text = absl::StrCat(
        "pin ", pin.pin_id(), " kept contributions up to commit ",
        pin.keep_end() - 1, ": ", beyond, " later commits cannot be replayed");
    if (flags.to > 0) return CannotReplay(text, "BEYOND_WHAT_IS_KEPT");
    context.output().Message(text);
  }
  if (flags.to > 0 &&
      (rounds.empty() || rounds.back().commit_seq() != flags.to)) {
    return CannotReplay(
        absl::StrCat("commit ", flags.to, " is not a commit after pin ",
                     pin.pin_id()),
        "NO_SUCH_COMMIT");
  }
  if (rounds.empty()) {
    return CannotReplay(absl::StrCat("no kept commit comes after "
                                     "pin ",
                                     pin.pin_id()),
                        "NOTHING_TO_REPLAY");
  }
  return rounds;
}

Json CommitToJson(const server::ReplayedCommit& commit) {
  Json json;
  json["commit_seq"] = absl::StrCat(commit.commit_seq);
  json["fragment"] = commit.fragment;
  json["version"] = absl::StrCat(commit.version);
  json["contribution_count"] = commit.contribution_count;
  json["agrees"] = commit.agrees();
  json["committed_digest"] = commit.committed.ToHex();
  json["replayed_digest"] = commit.replayed.ToHex();
  return json;
}

// "shard 1's part of the replica is 12.., but 34.. was committed".
std::string DescribeDifference(const server::ReplayDifference& difference) {
  return absl::StrCat(
      difference.shard < 0
          ? std::string("its digest")
          : absl::StrCat("shard ", difference.shard, "'s part of ",
                         difference.is_replica ? "the replica" : "it"),
      " is ", difference.replayed.ToHex(), ", but ",
      difference.committed.ToHex(), " was committed");
}

absl::Status DifferenceIn(const server::ReplayResult& result) {
  if (const server::ReplayedCommit* commit = result.first_difference()) {
    std::string text =
        absl::StrCat("commit ", commit->commit_seq, " (fragment ",
                     commit->fragment, ", version ", commit->version,
                     ") is the first that differs");
    for (const server::ReplayDifference& difference : commit->differences) {
      absl::StrAppend(&text, "; ", DescribeDifference(difference));
    }
    return WithReason(absl::DataLossError(text), "REPLAY_DIFFERS");
  }
  for (const server::ReplayedState& state : result.states) {
    if (state.element < 0) continue;
    return WithReason(
        absl::DataLossError(absl::StrCat(
            "fragment ", state.fragment, ", version ", state.version,
            ": array ", state.array, " of the outer optimizer differs from ",
            "element ", state.element, " on")),
        "REPLAY_DIFFERS");
  }
  return absl::OkStatus();
}

std::string StateText(const server::ReplayResult& result) {
  size_t compared = 0;
  for (const server::ReplayedState& state : result.states) {
    compared += state.compared ? 1 : 0;
  }
  if (result.states.empty()) return "";
  return absl::StrCat("the outer optimizer's state agrees in ", compared,
                      " of ", result.states.size(), " fragments",
                      compared == result.states.size()
                          ? "\n"
                          : "; the servers no longer hold the others'\n");
}

absl::Status Show(Context& context, const ReplayFlags& flags,
                  const server::ReplayResult& result) {
  const absl::Status status = DifferenceIn(result);
  int64_t agree_count = 0;
  Json commits = Json::array();
  Table table({">COMMIT", ">FRAGMENT", ">VERSION", ">CONTRIBUTIONS", "DIGEST",
               "AGREES"});
  for (const server::ReplayedCommit& commit : result.commits) {
    agree_count += commit.agrees();
    commits.push_back(CommitToJson(commit));
    table.AddRow({absl::StrCat(commit.commit_seq),
                  absl::StrCat(commit.fragment), absl::StrCat(commit.version),
                  absl::StrCat(commit.contribution_count),
                  commit.replayed.ToHex(), commit.agrees() ? "yes" : "NO"});
  }
  Output& output = context.output();
  if (output.format() == OutputFormat::kJsonl) {
    for (const Json& commit : commits) output.PrintEvent(commit, "");
    return status;
  }
  // With json the error's envelope is the only output.
  if (!status.ok() && output.format() == OutputFormat::kJson) return status;
  Json data;
  data["run_id"] = flags.run_id;
  data["from"] = flags.pin_id;
  data["commit_count"] = commits.size();
  data["agree_count"] = agree_count;
  data["commits"] = std::move(commits);
  data["states"] = Json::array();
  for (const server::ReplayedState& state : result.states) {
    Json json;
    json["fragment"] = state.fragment;
    json["version"] = absl::StrCat(state.version);
    json["compared"] = state.compared;
    data["states"].push_back(std::move(json));
  }
  output.Print(data,
               absl::StrCat(table.ToString(), agree_count, " of ",
                            result.commits.size(), " commits agree\n",
                            status.ok() ? StateText(result) : ""));
  return status;
}

absl::Status RunReplay(Context& context, const ReplayFlags& flags) {
  ASSIGN_OR_RETURN(const absl::Duration patience,
                   ParsePatience(flags.patience));
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  server::ReplayOptions options;
  ASSIGN_OR_RETURN(options.from, FindPin(*client, flags));
  ASSIGN_OR_RETURN(options.rounds,
                   ListDecisions(context, *client, flags, options.from));
  // Returns the addresses of the shards, and renews the pin's lease.
  v1::ExportCheckpointRequest request;
  request.set_run_id(flags.run_id);
  request.set_pin_id(flags.pin_id);
  ASSIGN_OR_RETURN(
      const v1::ExportCheckpointResponse pinned,
      client->Call(&v1::RunService::Stub::ExportCheckpoint, request));
  options.run = pinned.run();
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(options.run.spec().layout()));

  const rpc::ChannelOptions channel =
      context.MakeChannelOptions(rpc::ChannelKind::kData);
  server::ParameterClientOptions parameter_options =
      server::MakeRunOptions(options.run);
  parameter_options.channel = channel;
  ASSIGN_OR_RETURN(const std::unique_ptr<server::ParameterClient> parameters,
                   server::MakeParameterClient(parameter_options, layout));
  parameters->SetRoutes(server::ToRoutes(pinned));
  server::KeptClientOptions kept_options;
  kept_options.run_id = flags.run_id;
  kept_options.shard_count = options.run.spec().server_count();
  kept_options.channel = channel;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<server::KeptClient> kept,
      server::KeptClient::Create(kept_options, layout,
                                 server::ToRoutes(pinned)));

  Interrupt interrupt;
  Progress progress(context.progress_options, context.messages());
  const auto show = [&](const std::string& line) {
    progress.Update(line, absl::Now());
  };
  size_t count = 0;
  options.thread_count = ChooseThreadCount(flags.threads);
  options.bounds.stop = interrupt.first();
  options.bounds.idle_max = patience;
  ServerWait wait(
      *client, flags.run_id, server::ToRoutes(pinned), patience,
      [&](const server::ShardRoutes& routes) {
        parameters->SetRoutes(routes);
        kept->SetRoutes(routes);
      },
      [&](const std::string& line) { progress.Note(line); });
  options.bounds.on_waiting = [&](const server::TransferWait& waiting) {
    wait.OnWaiting(waiting);
  };
  options.on_commit = [&](const v1::Round& round) {
    show(absl::StrCat("replayed ", ++count, " of ", options.rounds.size(),
                      " commits"));
  };
  const absl::StatusOr<server::ReplayResult> result =
      server::Replay(options, layout, *parameters, *kept);
  progress.Clear();
  RETURN_IF_ERROR(result.status());
  return Show(context, flags, *result);
}

}  // namespace

void AddReplay(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "replay", "Recompute the versions after a pin and compare them");
  command.Footer(
      "Reads a pin's cut and the contributions kept after it. Merges them as\n"
      "the coordinator decided, with the servers' arithmetic, and compares "
      "each\n"
      "digest with the committed one. Exits with 5 if one differs.\n"
      "Needs the role operator, and memory for the largest fragment and its\n"
      "outer optimizer's state.\n"
      "Example:\n"
      "  atoll run pin laptop --id audit --keep-mb 2000\n"
      "  atoll replay laptop --from audit");
  auto flags = std::make_shared<ReplayFlags>();
  command.Add("run", flags->run_id, "Id of the run").Required();
  command
      .Add("--from", flags->pin_id,
           "Id of a pin that keeps contributions (atoll run pin)")
      .Required();
  command.Add("--to", flags->to, "Last commit to replay; default: the newest")
      .Check(flags::Range(int64_t{1}, int64_t{1} << 62));
  AddThreadsFlag(command, flags->threads);
  AddPatience(command, flags->patience);
  SetAction(command, context, RunReplay, flags);
}

}  // namespace atl::cli
