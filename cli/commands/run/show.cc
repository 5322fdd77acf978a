#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/layout/weight_unit.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/run/run_commands.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// "yes", "not yet", or the fault.
std::string DescribeDurable(const v1::Checkpoint& checkpoint) {
  for (const v1::CheckpointShard& shard : checkpoint.shards()) {
    if (shard.fault().empty()) continue;
    return absl::StrCat("no: on ", shard.server_id(), ", ", shard.fault());
  }
  if (!checkpoint.durable()) return "not yet";
  return checkpoint.pin().suspect() ? "yes, suspect" : "yes";
}

std::string DescribeCheckpoints(
    const std::vector<v1::Checkpoint>& checkpoints) {
  Table table({"CHECKPOINT", ">COMMIT", ">ROUND", "MADE", "DURABLE"});
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    const v1::Pin& pin = checkpoint.pin();
    if (!pin.checkpoint()) continue;
    table.AddRow({pin.pin_id(), absl::StrCat(pin.commit_seq()),
                  pin.cut().empty() ? "-" : absl::StrCat(pin.cut(0).version()),
                  FormatTimestamp(FromProto(checkpoint.create_time())),
                  DescribeDurable(checkpoint)});
  }
  Table kept({"PIN", ">COMMIT", "UNTIL", "KEEPS"});
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    const v1::Pin& pin = checkpoint.pin();
    if (pin.keep_bytes_max() == 0) continue;
    std::string keeps = DescribeKept(pin);
    for (const v1::CheckpointShard& shard : checkpoint.shards()) {
      keeps = absl::StrCat("on ", shard.server_id(), ", ", shard.fault());
    }
    kept.AddRow({pin.pin_id(), absl::StrCat(pin.commit_seq()),
                 FormatTimestamp(FromProto(checkpoint.expire_time())), keeps});
  }
  std::string text;
  for (const Table* shown : {&table, &kept}) {
    if (!shown->empty()) absl::StrAppend(&text, "\n", shown->ToString());
  }
  return text;
}

// Returns why a server blocks the run; empty: it does not.
std::string DescribeFault(const v1::ServerState& server) {
  if (!server.fault().empty()) return server.fault();
  if (!server.alive() && !server.placement().server_id().empty()) {
    return absl::StrCat(
        "away: restart it with its --data-dir; if that is lost: atoll server "
        "replace ",
        server.placement().server_id());
  }
  if (server.blocked_reason().empty()) return "";
  return absl::StrCat("retrying: ", server.blocked_reason());
}

// Returns how far a stopped shard is behind; empty: it is not.
std::string DescribeBehind(const v1::ServerState& server) {
  if (!absl::StartsWith(server.fault(), "SHARD_BEHIND") ||
      server.persisted_commit_seq() >= server.acknowledged_commit_seq()) {
    return "";
  }
  return absl::StrCat(
      "server ", server.placement().server_id(), " has commit ",
      server.persisted_commit_seq(), ", it acknowledged ",
      server.acknowledged_commit_seq(),
      ": its data directory is an older copy, or parts of it are gone");
}

std::string DescribeMirror(const v1::RunMirror& mirror) {
  std::string text =
      mirror.commit_seq() == 0
          ? "no checkpoint yet"
          : absl::StrCat("checkpoint at commit ", mirror.commit_seq(),
                         ", whole since ",
                         FormatTimestamp(
                             FromProto(mirror.last_success_time())),
                         ", without the newest ", mirror.lag(), " commits");
  if (!mirror.error().empty()) absl::StrAppend(&text, ": ", mirror.error());
  return text;
}

// Islands that are READY, by DescribeWork().
using Work = std::map<std::string, int64_t>;

absl::StatusOr<Work> CountWork(coordinator::Client& client,
                               const std::string& run_id) {
  ASSIGN_OR_RETURN(const std::vector<v1::Island> islands,
                   client.ListIslands(run_id));
  Work work;
  for (const v1::Island& island : islands) {
    if (island.state() == v1::ISLAND_STATE_READY) ++work[DescribeWork(island)];
  }
  return work;
}

std::string DescribeState(const v1::GetRunStateResponse& state,
                          const Work& work) {
  const v1::Run& run = state.run();
  Fields fields;
  fields.Add("run", run.run_id());
  if (!run.run_uid().empty()) fields.Add("uid", run.run_uid());
  fields.Add("state", EnumName(run.state()));
  if (!run.state_reason().empty()) fields.Add("why", run.state_reason());
  if (run.has_fault()) {
    const v1::Fault& fault = run.fault();
    fields.Add("fault", fault.code());
    fields.AddText("  expected", fault.expected());
    fields.AddText("  found", fault.found());
    if (!fault.next_command().empty()) {
      fields.Add("  next command", fault.next_command());
    }
    if (fault.code() == "LOG_BEHIND" || fault.code() == "LOG_DAMAGED") {
      fields.AddText("  if the newest log is lost",
                     "`atoll-coordinator restore` makes one in its place");
    }
  }
  // The reason of a pause by the guard says it already.
  if (!state.outside_band().empty() &&
      run.state_reason().find(state.outside_band()) == std::string::npos) {
    fields.AddText("guard",
                   absl::StrCat(state.outside_band(), "; `atoll run resume ",
                                run.run_id(), "` accepts it as good"));
  }
  for (const v1::ServerState& server : state.servers()) {
    const std::string behind = DescribeBehind(server);
    if (!behind.empty()) fields.AddText("behind", behind);
  }
  if (run.has_restored()) {
    fields.AddText("restored", DescribeRestore(run.restored()));
  }
  for (const v1::SilentTrainer& silent : state.silent_trainers()) {
    fields.AddText(
        "trainer",
        absl::StrCat("of ", silent.island_id(), " has not answered for ",
                     FormatSpan(absl::Seconds(silent.silence_seconds())),
                     ": look at its log"));
  }
  for (const v1::SittingOut& sitting : state.sitting_out()) {
    fields.AddText("island",
                   absl::StrCat(sitting.island_id(), ": ",
                                DescribeSittingOut(sitting,
                                                   state.commit_seq())));
  }
  for (const v1::HinderedIsland& hindered : state.hindered_islands()) {
    fields.AddText("island", absl::StrCat(hindered.island_id(),
                                          " does not train: ",
                                          hindered.hindrance()));
  }
  for (const v1::IslandWarning& warning : state.warnings()) {
    fields.AddText("warning", absl::StrCat("island ", warning.island_id(), ": ",
                                           warning.warning()));
  }
  const std::string wait = DescribeWait(state);
  if (!wait.empty()) fields.Add("waits", wait);
  const v1::ScheduleSpec& schedule = run.spec().schedule();
  fields.Add("rounds",
             DescribeRounds(CompleteRounds(state), schedule.round_count()));
  fields.Add("islands", absl::StrCat(state.live_island_count(), " live, ",
                                     run.spec().schedule().island_count_min(),
                                     " needed to start"));
  if (!work.empty()) {
    fields.Add("at work", absl::StrJoin(work, ", ", [](auto* out, auto& part) {
                 absl::StrAppend(out, part.second, " ", part.first);
               }));
  }
  if (state.has_evaluation()) {
    fields.Add(
        "validation loss",
        absl::StrCat(FormatLoss(state.evaluation().loss()),
                     " nats a token, version ", state.evaluation().version(),
                     DescribeEvaluator(state.evaluation())));
  }
  if (state.has_failed_evaluation()) {
    fields.AddText("evaluation", DescribeEvaluation(state.failed_evaluation()));
  }
  if (state.has_training_loss()) {
    fields.Add("training loss", FormatLoss(state.training_loss()));
  }
  const absl::string_view unit = WeightUnitName(run.spec().weight_unit());
  fields.Add(absl::StrCat(unit, "/s"),
             FormatCount(static_cast<int64_t>(state.tokens_per_second())));
  fields.Add(absl::StrCat("merged ", unit),
             DescribeTokens(state.merged_token_count(), schedule));
  const double tokens_left =
      static_cast<double>(schedule.token_count() - state.merged_token_count());
  if (tokens_left > 0 && state.tokens_per_second() > 0 &&
      !HasEnded(run.state())) {
    const absl::Duration left =
        absl::Seconds(tokens_left / state.tokens_per_second());
    fields.Add("left",
               absl::StrCat(FormatSpan(left), " at the islands' speed"));
  }
  fields.Add("model", DescribeModel(run.spec()));
  fields.Add("exchange", DescribeExchange(run.spec().exchange()));
  fields.Add("bytes up", FormatBytes(state.sent_bytes()));
  fields.Add("bytes down", FormatBytes(state.received_bytes()));
  fields.Add("commits", absl::StrCat(state.commit_seq()));
  fields.Add("last commit",
             state.has_last_commit_time()
                 ? FormatTimestamp(FromProto(state.last_commit_time()))
                 : "-");
  if (state.has_mirror()) {
    fields.AddText("mirror", DescribeMirror(state.mirror()));
  }
  fields.Add("created", FormatTimestamp(FromProto(run.create_time())));
  if (run.has_end_time()) {
    fields.Add("ended", FormatTimestamp(FromProto(run.end_time())));
  }
  std::string text = fields.ToString();
  if (!state.servers().empty()) {
    Table table({"SHARD", "SERVER", "ADDRESS", "ALIVE", ">PERSISTED", "FAULT"});
    for (const v1::ServerState& server : state.servers()) {
      table.AddRow({absl::StrCat(server.placement().shard()),
                    server.placement().server_id(),
                    server.placement().address(), server.alive() ? "yes" : "no",
                    absl::StrCat(server.persisted_commit_seq()),
                    DescribeFault(server)});
    }
    absl::StrAppend(&text, "\n", table.ToString());
  }
  return text;
}

absl::Status ShowRun(Context& context, const std::string& run_id) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  ASSIGN_OR_RETURN(const v1::GetRunStateResponse state,
                   client->GetRunState(run_id));
  ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> checkpoints,
                   client->ListCheckpoints(run_id));
  ASSIGN_OR_RETURN(const Work work, CountWork(*client, run_id));
  Json json = ToJson(state);
  json["work"] = work;
  if (!state.run().has_fault()) json["run"]["fault"] = nullptr;
  json["checkpoints"] = Json::array();
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    json["checkpoints"].push_back(ToJson(checkpoint));
  }
  context.output().Print(json, absl::StrCat(DescribeState(state, work),
                                            DescribeCheckpoints(checkpoints)));
  return absl::OkStatus();
}

}  // namespace

void AddRunShow(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("show", "Show a run's state and progress");
  command.Footer("Example:\n  atoll run show laptop -o json");
  auto run_id = std::make_shared<std::string>();
  command.Add("run", *run_id, "Id of the run").Required();
  SetAction(command, context, ShowRun, run_id);
}

}  // namespace atl::cli
