// atoll run pin: keeps a cut and the contributions merged after it.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/run_commands.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

struct PinOptions {
  std::string run_id;
  std::string pin_id;
  int64_t keep_mb = 0;
  double hours = 24;
  bool release = false;
};

absl::Status Pin(Context& context, const PinOptions& options) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  v1::ExportCheckpointRequest request;
  request.set_run_id(options.run_id);
  request.set_pin_id(options.pin_id);
  request.set_release(options.release);
  request.set_keep_bytes_max(options.keep_mb * 1000000);
  const absl::Duration lease = absl::Hours(options.hours);
  request.mutable_lease_duration()->set_seconds(absl::ToInt64Seconds(lease));
  ASSIGN_OR_RETURN(
      const v1::ExportCheckpointResponse response,
      client->Call(&v1::RunService::Stub::ExportCheckpoint, request));
  if (options.release) {
    Json data;
    data["pin_id"] = options.pin_id;
    data["released"] = true;
    context.output().Print(
        data, absl::StrCat("pin ", options.pin_id, " is released\n"));
    return absl::OkStatus();
  }
  const v1::Pin& pin = response.pin();
  Fields fields;
  fields.Add("pin", pin.pin_id());
  fields.Add("first commit after it", absl::StrCat(pin.commit_seq()));
  fields.Add("keeps", DescribeKept(pin));
  fields.Add("until", absl::StrCat("it is released, or ", FormatSpan(lease),
                                   " from now: the same command renews it"));
  context.output().Print(ToJson(pin), fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddRunPin(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "pin", "Keep the newest cut and the contributions merged after it");
  command.Footer(
      "With --keep-mb the servers keep the contributions of every later "
      "commit,\n"
      "up to that many MB, for `atoll replay`. The same command renews the "
      "pin.\n"
      "Example:\n  atoll run pin laptop --id audit --keep-mb 2000");
  auto options = std::make_shared<PinOptions>();
  command.Add("run", options->run_id, "Id of the run").Required();
  command.Add("--id", options->pin_id, "Id of the pin").Required();
  command
      .Add("--keep-mb", options->keep_mb,
           "MB of contributions to keep, over all servers; default: "
           "none")
      .Check(flags::Range(int64_t{1}, int64_t{1000000000}));
  command
      .Add("--hours", options->hours,
           "Hours until the pin expires unless renewed (24)")
      .Check(flags::Range(0.01, 24.0));
  command.AddFlag("--release", options->release,
                  "Release the pin and delete what it keeps; of a run that "
                  "has ended also a checkpoint");
  SetAction(command, context, Pin, options);
}

}  // namespace atl::cli
