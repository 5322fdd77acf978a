// atoll run pause, resume and cancel: one call each.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/run_commands.h"
#include "cli/output/describe.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

template <typename Request, auto Method>
absl::Status Steer(Context& context, const Request& request) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  ASSIGN_OR_RETURN(const auto response, client->Call(Method, request));
  context.output().Print(ToJson(response), DescribeRun(response.run()));
  return absl::OkStatus();
}

template <typename Request, auto Method>
void AddSteering(flags::Command& app, Context& context, const std::string& name,
                 const std::string& help) {
  flags::Command& command = app.AddCommand(name, help);
  command.Footer(absl::StrCat("Example:\n  atoll run ", name, " laptop"));
  auto request = std::make_shared<Request>();
  command.Add("run", *request->mutable_run_id(), "Id of the run").Required();
  SetAction(command, context, Steer<Request, Method>, request);
}

}  // namespace

void AddRunPause(flags::Command& app, Context& context) {
  AddSteering<v1::PauseRunRequest, &v1::RunService::Stub::PauseRun>(
      app, context, "pause", "Pause a run: open and seal no further rounds");
}

void AddRunResume(flags::Command& app, Context& context) {
  AddSteering<v1::ResumeRunRequest, &v1::RunService::Stub::ResumeRun>(
      app, context, "resume", "Resume a paused run");
}

void AddRunCancel(flags::Command& app, Context& context) {
  AddSteering<v1::CancelRunRequest, &v1::RunService::Stub::CancelRun>(
      app, context, "cancel", "End a run permanently");
}

}  // namespace atl::cli
