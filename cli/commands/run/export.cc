#include <memory>
#include <string>
#include <utility>

#include "base/status/status_macros.h"
#include "cli/commands/run/export_run.h"
#include "cli/commands/run/run_commands.h"
#include "cli/flags/server_wait.h"
#include "cli/interrupt.h"
#include "cli/output/progress.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

struct RunExportOptions {
  ExportOptions what;
  std::string patience = "60s";
};

absl::Status Export(Context& context, const RunExportOptions& flags) {
  Interrupt interrupt;
  ExportOptions options = flags.what;
  options.stop = interrupt.first();
  ASSIGN_OR_RETURN(options.patience, ParsePatience(flags.patience));
  Progress progress(context.progress_options, context.messages());
  ASSIGN_OR_RETURN(auto client, context.MakeClient({options.stop, &progress}));
  options.on_progress = ShowAfterASecond(progress);
  options.on_notice = [&](const std::string& line) { progress.Note(line); };
  const absl::StatusOr<Exported> made = ExportRun(context, *client, options);
  progress.Clear();
  RETURN_IF_ERROR(made.status());
  Json data;
  data["run_id"] = options.run_id;
  PrintExported(context, std::move(data), *made,
                !options.template_directory.empty());
  return absl::OkStatus();
}

}  // namespace

void AddRunExport(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "export", "Write a run's parameters as a model directory (safetensors)");
  command.Footer(
      "The directory loads in transformers (AutoModelForCausalLM), `atoll "
      "eval`\n"
      "and `atoll generate`. Of an external model it has only the tensors, "
      "with the\n"
      "names of the run's list. With --template it has the files of a "
      "directory that\n"
      "your program saved (save_pretrained of transformers or PEFT, save_file "
      "of\n"
      "safetensors), with the run's values: also tied heads, buffers and "
      "frozen layers.\n"
      "The directory may have other files: they stay. A file in the way is an "
      "error.\n"
      "Example:\n  atoll run export laptop --output model");
  auto flags = std::make_shared<RunExportOptions>();
  ExportOptions* const options = &flags->what;
  command.Add("run", options->run_id, "Id of the run").Required();
  AddExportTarget(command, *options);
  command.Add("--checkpoint", options->checkpoint,
              "Id of a kept checkpoint, e.g. \"final\"; default: the "
              "newest cut");
  AddPatience(command, flags->patience);
  SetAction(command, context, Export, flags);
}

}  // namespace atl::cli
