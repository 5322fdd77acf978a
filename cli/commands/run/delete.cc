// atoll run delete: removes an ended run everywhere.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/run_commands.h"
#include "cli/output/output.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

absl::Status DeleteRun(Context& context, const std::string& run_id) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  v1::DeleteRunRequest request;
  request.set_run_id(run_id);
  ASSIGN_OR_RETURN(const v1::DeleteRunResponse response,
                   client->Call(&v1::RunService::Stub::DeleteRun, request));
  Json data;
  data["run_id"] = run_id;
  data["run_uid"] = response.run_uid();
  data["waiting_server_ids"] = Json::array();
  for (const std::string& server_id : response.waiting_server_ids()) {
    data["waiting_server_ids"].push_back(server_id);
  }
  Fields fields;
  fields.Add("deleted", run_id);
  fields.Add("uid", response.run_uid());
  fields.AddText("files", response.waiting_server_ids().empty()
                              ? std::string("no server has any")
                              : absl::StrCat(
                                    "still to be deleted by ",
                                    absl::StrJoin(response.waiting_server_ids(),
                                                  ", "),
                                    ": by a server that is away, once it is "
                                    "back"));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddRunDelete(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "delete", "Delete an ended run, its history and its checkpoints");
  command.Footer(
      "The servers delete the run's files, its checkpoints among them. Export "
      "first\n"
      "what you want to keep. The id is free for another run at once. A second "
      "call\n"
      "says which servers still have files.\n"
      "Example:\n  atoll run delete laptop");
  auto run_id = std::make_shared<std::string>();
  command.Add("run", *run_id, "Id of the run").Required();
  SetAction(command, context, DeleteRun, run_id);
}

}  // namespace atl::cli
