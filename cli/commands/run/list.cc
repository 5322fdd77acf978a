#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/run/run_commands.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

absl::Status ListRuns(Context& context) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  Table table(
      {"RUN", "STATE", ">ROUNDS", ">TOKENS", ">ISLANDS", "CREATED", "WHY"});
  Json runs = Json::array();
  v1::ListRunsRequest request;
  request.set_page_size(500);
  do {
    ASSIGN_OR_RETURN(v1::ListRunsResponse response,
                     client->Call(&v1::RunService::Stub::ListRuns, request));
    for (const v1::Run& run : response.runs()) {
      Json& json = runs.emplace_back(ToJson(run));
      if (!run.has_fault()) json["fault"] = nullptr;
      table.AddRow({run.run_id(), DescribeRunState(run),
                    PlannedRounds(run.spec().schedule()),
                    PlannedTokens(run.spec().schedule()),
                    absl::StrCat(run.spec().schedule().island_count_min()),
                    FormatTimestamp(FromProto(run.create_time())),
                    run.state_reason()});
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  if (table.empty()) context.output().Message("no runs");
  context.output().PrintList("runs", runs,
                             table.empty() ? "" : table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddRunList(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand("list", "List runs");
  command.Footer("Example:\n  atoll run list -o json");
  command.Action([&context] { context.action = ListRuns; });
}

}  // namespace atl::cli
