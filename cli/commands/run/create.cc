#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/run_commands.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/presets/presets.h"
#include "cli/run_file/complete_spec.h"
#include "cli/run_file/load.h"

namespace atl::cli {
namespace {

struct CreateOptions {
  std::string file;
  RunFileChanges changes;
  std::string data_directory;
  bool validate_only = false;
};

// Reads the manifest of the run's data: at its URL, or in a copy.
worker::StoreOpener ChooseOpener(const Context& context,
                                 const std::string& data_directory) {
  if (data_directory.empty()) {
    return MakeStoreOpener(context.environment,
                           {.proxy = context.settings.proxy()});
  }
  return [data_directory](const std::string&, std::function<bool()> cancelled) {
    return worker::OpenStoreOfUrl(
        absl::StrCat("file://", AbsolutePath(data_directory)),
        std::move(cancelled));
  };
}

absl::Status CreateRun(Context& context, const CreateOptions& options) {
  ASSIGN_OR_RETURN(RunFile run, LoadRunFile(options.file, options.changes));
  RETURN_IF_ERROR(
      CompleteSpec(&run, ChooseOpener(context, options.data_directory)));
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  v1::CreateRunRequest request;
  request.set_run_id(run.run_id);
  *request.mutable_spec() = run.spec;
  request.set_validate_only(options.validate_only);
  absl::StatusOr<v1::CreateRunResponse> response =
      client->Call(&v1::RunService::Stub::CreateRun, request);
  if (absl::IsAlreadyExists(response.status())) {
    return WithHint(response.status(),
                    "Give another id with --run-id, or look at the existing "
                    "run: atoll run show " +
                        run.run_id);
  }
  RETURN_IF_ERROR(response.status());
  Table table({"RUN", "STATE", ">ROUNDS", ">TOKENS", ">ISLANDS", ">SERVERS"});
  const v1::Run& created = response->run();
  table.AddRow(
      {run.run_id, options.validate_only ? "VALID" : EnumName(created.state()),
       PlannedRounds(run.spec.schedule()), PlannedTokens(run.spec.schedule()),
       absl::StrCat(run.spec.schedule().island_count_min()),
       absl::StrCat(run.spec.server_count())});
  context.output().Print(ToJson(*response), table.ToString());
  if (const std::string doubt = DescribeShortRun(run.spec); !doubt.empty()) {
    context.output().Message(doubt);
  }
  if (run.spec.init().import() && !options.validate_only &&
      created.state() == v1::RUN_STATE_STARTING) {
    context.output().Message(
        absl::StrCat("the run waits for its model: atoll run import ",
                     run.run_id, " --model ", run.model_directory));
  }
  return absl::OkStatus();
}

}  // namespace

void AddRunCreate(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("create", "Create a run from a run file");
  command.Footer(absl::StrCat(
      "FILE is TOML with the fields of RunSpec, or a preset: ", PresetNames(),
      ".\nA retry is safe: the same file and id give the same run.\n"
      "Examples:\n  atoll run create my.toml --run-id spring\n"
      "  atoll run create my.toml --tensors tensors.json"));
  auto options = std::make_shared<CreateOptions>();
  AddRunFileFlags(command, options->file, options->changes);
  command.Add("--tensors", options->changes.tensors_path,
              "File with the list of tensors of an external model, "
              "instead of the file's");
  command.Add("--data-copy", options->data_directory,
              "A copy of the directory of [data] url, for a URL that "
              "this machine may not read");
  command.AddFlag("--validate-only", options->validate_only,
                  "Only check the file; create nothing");
  SetAction(command, context, CreateRun, options);
}

}  // namespace atl::cli
