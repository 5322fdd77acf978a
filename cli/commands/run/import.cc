#include <memory>
#include <string>

#include "base/status/status_macros.h"
#include "cli/commands/run/import_run.h"
#include "cli/commands/run/run_commands.h"
#include "cli/interrupt.h"
#include "cli/output/describe.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

struct RunImportOptions {
  std::string run_id;
  std::string directory;
  std::string patience = "5m";
};

absl::Status Import(Context& context, const RunImportOptions& options) {
  Interrupt interrupt;
  ImportOptions import_options;
  import_options.directory = options.directory;
  import_options.stop = interrupt.first();
  ASSIGN_OR_RETURN(import_options.patience, ParsePatience(options.patience));
  Progress progress(context.progress_options, context.messages());
  ASSIGN_OR_RETURN(auto client,
                   context.MakeClient({interrupt.first(), &progress}));
  ASSIGN_OR_RETURN(const v1::GetRunResponse answer,
                   client->GetRun(options.run_id));
  import_options.on_progress = [&](const std::string& line) {
    progress.Update(line, absl::Now());
  };
  import_options.on_notice = [&](const std::string& line) {
    progress.Note(line);
  };
  const absl::StatusOr<Imported> imported =
      ImportRun(context, *client, answer.run(), import_options);
  progress.Clear();
  RETURN_IF_ERROR(imported.status());
  Json data;
  data["run_id"] = options.run_id;
  data["directory"] = imported->directory;
  data["parameters_sha256"] = imported->parameters_sha256;
  data["size_bytes"] = imported->size_bytes;
  data["sent_bytes"] = imported->sent_bytes;
  data["state"] = EnumName(imported->state);
  Fields fields;
  fields.Add("run", options.run_id);
  fields.Add("state", EnumName(imported->state));
  fields.Add("model", imported->directory);
  fields.Add("sha256", imported->parameters_sha256);
  fields.Add("size", FormatBytes(imported->size_bytes));
  fields.Add("sent", FormatBytes(imported->sent_bytes));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddRunImport(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("import", "Upload the model that a run starts from");
  command.Footer(
      "The run file names the model under [init]. The directory holds\n"
      "config.json and safetensors (one file, or several with their index; "
      "F32,\n"
      "BF16 or F16). An external model needs no config.json; its tensors have "
      "the\n"
      "names and shapes of the run's list. The model is checked before "
      "anything is\n"
      "sent. After an interruption the same command continues from what the\n"
      "servers have.\n"
      "Example:\n"
      "  atoll run create tune.toml --run-id tune\n"
      "  atoll run import tune --model export");
  auto options = std::make_shared<RunImportOptions>();
  command.Add("run", options->run_id, "Id of the run").Required();
  command.Add("--model", options->directory, "Directory of the model")
      .Required();
  command
      .Add("--patience", options->patience,
           "Longest time without progress before giving up: 30s, 5m")
      .ShowDefault();
  SetAction(command, context, Import, options);
}

}  // namespace atl::cli
