#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

std::string DescribeState(const v1::GetRunStateResponse& state) {
  const v1::Run& run = state.run();
  Fields fields;
  fields.Add("run", run.run_id());
  fields.Add("state", EnumName(run.state()));
  if (!run.state_reason().empty()) fields.Add("why", run.state_reason());
  fields.Add("rounds", absl::StrCat(CompleteRounds(state), " of ",
                                    run.spec().schedule().round_count()));
  fields.Add("islands", absl::StrCat(state.live_island_count(), " live, ",
                                     run.spec().schedule().island_count_min(),
                                     " needed to start"));
  if (state.has_evaluation()) {
    fields.Add(
        "validation loss",
        absl::StrCat(FormatLoss(state.evaluation().loss()),
                     " nats a token, version ", state.evaluation().version()));
  }
  if (state.has_training_loss()) {
    fields.Add("training loss", FormatLoss(state.training_loss()));
  }
  fields.Add("tokens/s",
             FormatCount(static_cast<int64_t>(state.tokens_per_second())));
  fields.Add("merged tokens", FormatCount(state.merged_token_count()));
  fields.Add("bytes up", FormatBytes(state.sent_bytes()));
  fields.Add("bytes down", FormatBytes(state.received_bytes()));
  fields.Add("commits", absl::StrCat(state.commit_seq()));
  fields.Add("last commit", FormatTimestamp(ToTime(state.last_commit_time())));
  fields.Add("created", FormatTimestamp(ToTime(run.create_time())));
  if (run.has_end_time()) {
    fields.Add("ended", FormatTimestamp(ToTime(run.end_time())));
  }
  std::string text = fields.ToString();
  if (!state.servers().empty()) {
    Table table({"SHARD", "SERVER", "ADDRESS", "ALIVE", ">PERSISTED", "FAULT"});
    for (const v1::ServerState& server : state.servers()) {
      table.AddRow({absl::StrCat(server.placement().shard()),
                    server.placement().server_id(),
                    server.placement().address(), server.alive() ? "yes" : "no",
                    absl::StrCat(server.persisted_commit_seq()),
                    server.fault()});
    }
    absl::StrAppend(&text, "\n", table.ToString());
  }
  return text;
}

absl::Status ShowRun(Context& context, const std::string& run_id) {
  ASSIGN_OR_RETURN(auto client, context.MakeRunClient());
  v1::GetRunStateRequest request;
  request.set_run_id(run_id);
  ASSIGN_OR_RETURN(const v1::GetRunStateResponse state,
                   client->GetRunState(request));
  context.output().Print(ToJson(state), DescribeState(state));
  return absl::OkStatus();
}

}  // namespace

void AddRunShow(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("show", "Show where a run stands");
  command->footer("Example:\n  atoll run show laptop -o json");
  auto run_id = std::make_shared<std::string>();
  command->add_option("run", *run_id, "Id of the run")->required();
  command->callback([&context, run_id] {
    context.action = [run_id](Context& context) {
      return ShowRun(context, *run_id);
    };
  });
}

}  // namespace atl::cli
