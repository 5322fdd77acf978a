// atoll island revoke.
#include <memory>

#include "absl/strings/str_cat.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/enrol/enrol_commands.h"
#include "cli/output/output.h"
#include "coordinator/client/client.h"

namespace atl::cli {
namespace {

absl::Status RevokeIsland(Context& context,
                          const v1::RevokeIslandRequest& request) {
  ASSIGN_OR_RETURN(const auto client, context.MakeClient());
  RETURN_IF_ERROR(
      client->Call(&v1::EnrolmentService::Stub::RevokeIsland, request)
          .status());
  context.output().Print(
      Json{{"run_id", request.run_id()}, {"island_id", request.island_id()}},
      absl::StrCat(request.island_id(), " is revoked in run ", request.run_id(),
                   ": its certificates are refused for good, and its name is "
                   "not given out again\n"));
  return absl::OkStatus();
}

}  // namespace

void AddIslandRevoke(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "revoke", "Remove an island for good: its certificates are refused");
  command.Footer(
      "Cannot be undone; `atoll island remove` can. The person may join "
      "again\n"
      "under another name with another token: revoke that, too.\n"
      "Example:\n  atoll island revoke spring e-attic");
  auto request = std::make_shared<v1::RevokeIslandRequest>();
  command.Add("run", *request->mutable_run_id(), "Id of the run").Required();
  command.Add("island", *request->mutable_island_id(), "Id of the island")
      .Required();
  SetAction(command, context, RevokeIsland, request);
}

}  // namespace atl::cli
