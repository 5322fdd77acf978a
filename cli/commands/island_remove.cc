// atoll island remove and readmit: one call each.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/output/describe.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

absl::Status Remove(Context& context,
                    const v1::RemoveIslandRequest& request) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  ASSIGN_OR_RETURN(const v1::RemoveIslandResponse response,
                   client->Call(&v1::RunService::Stub::RemoveIsland, request));
  context.output().Print(ToJson(response), DescribeRun(response.run()));
  return absl::OkStatus();
}

void AddRemoval(flags::Command& app, Context& context, const std::string& name,
                const std::string& help, bool readmit) {
  flags::Command& command = app.AddCommand(name, help);
  command.Footer(
      absl::StrCat("Example:\n  atoll island ", name, " laptop kitchen"));
  auto request = std::make_shared<v1::RemoveIslandRequest>();
  request->set_readmit(readmit);
  command.Add("run", *request->mutable_run_id(), "Id of the run").Required();
  command.Add("island", *request->mutable_island_id(), "Id of the island")
      .Required();
  SetAction(command, context, Remove, request);
}

}  // namespace

void AddIslandRemove(flags::Command& app, Context& context) {
  AddRemoval(app, context, "remove",
             "Remove an island: no round waits for it, and it cannot join",
             /*readmit=*/false);
}

void AddIslandReadmit(flags::Command& app, Context& context) {
  AddRemoval(app, context, "readmit", "Let a removed island join again",
             /*readmit=*/true);
}

}  // namespace atl::cli
