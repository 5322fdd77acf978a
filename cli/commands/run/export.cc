#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "cli/commands/run/export_run.h"
#include "cli/commands/run/run_commands.h"
#include "cli/flags/server_wait.h"
#include "cli/interrupt.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
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
  const absl::Time begin = absl::Now();
  options.on_progress = [&](const std::string& line) {
    if (absl::Now() - begin < absl::Seconds(1)) return;
    progress.Update(line, absl::Now());
  };
  options.on_notice = [&](const std::string& line) { progress.Note(line); };
  const absl::StatusOr<Exported> made = ExportRun(context, *client, options);
  progress.Clear();
  RETURN_IF_ERROR(made.status());
  const Exported& exported = *made;
  Json data;
  data["run_id"] = options.run_id;
  data["directory"] = exported.directory;
  data["commit_seq"] = absl::StrCat(exported.commit_seq);
  data["parameters_sha256"] = exported.parameters_sha256;
  data["size_bytes"] = exported.size_bytes;
  data["received_bytes"] = exported.received_bytes;
  const worker::TemplateUse& use = exported.template_use;
  if (!flags.what.template_directory.empty()) {
    data["template"] = {{"filled_count", use.filled_count},
                        {"kept_count", use.kept_count},
                        {"tied", use.tied},
                        {"left_out", use.left_out}};
  }
  Fields fields;
  fields.Add("directory", exported.directory);
  fields.Add("commit", absl::StrCat(exported.commit_seq));
  fields.Add("sha256", exported.parameters_sha256);
  fields.Add("size", FormatBytes(exported.size_bytes));
  if (!flags.what.template_directory.empty()) {
    fields.AddText("tensors",
                   absl::StrCat(use.filled_count, " of the run, ",
                                use.tied.size(), " tied to one, ",
                                use.kept_count, " as in the template"));
    if (!use.tied.empty()) {
      fields.AddText("tied", absl::StrJoin(use.tied, ", "));
    }
    if (!use.left_out.empty()) {
      fields.AddText("not copied", absl::StrJoin(use.left_out, ", "));
    }
  }
  context.output().Print(data, fields.ToString());
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
  command.Add("output,--output", options->directory, "Directory to write")
      .Required();
  command.AddFlag("--force", options->force,
                  "Replace the export of another run or commit; other files "
                  "are never replaced");
  command.Add("--checkpoint", options->checkpoint,
              "Id of a kept checkpoint, e.g. \"final\"; default: the "
              "newest cut");
  command.Add("--template", options->template_directory,
              "Directory of a model or an adapter to fill with the run's "
              "values");
  command
      .Add("--weight-file-mb", options->weight_file_mb_max,
           "Largest weight file in MB; a larger model gets several "
           "files and an index")
      .Check(flags::Range(1, 1000000))
      .ShowDefault();
  AddPatience(command, flags->patience);
  SetAction(command, context, Export, flags);
}

}  // namespace atl::cli
