#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/export_run.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

absl::Status Export(Context& context, const ExportOptions& options) {
  ASSIGN_OR_RETURN(auto client, context.MakeRunClient());
  ASSIGN_OR_RETURN(const Exported exported,
                   ExportRun(context, *client, options));
  Json data;
  data["run_id"] = options.run_id;
  data["directory"] = exported.directory;
  data["commit_seq"] = absl::StrCat(exported.commit_seq);
  data["parameters_sha256"] = exported.parameters_sha256;
  data["size_bytes"] = exported.size_bytes;
  data["received_bytes"] = exported.received_bytes;
  Fields fields;
  fields.Add("directory", exported.directory);
  fields.Add("commit", absl::StrCat(exported.commit_seq));
  fields.Add("sha256", exported.parameters_sha256);
  fields.Add("size", FormatBytes(exported.size_bytes));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddRunExport(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "export", "Write a run's parameters as safetensors, for other tools");
  command->footer(
      "DIR then loads in transformers (AutoModelForCausalLM), in `atoll eval`\n"
      "and `atoll generate`.\n"
      "Example:\n  atoll run export laptop --output model");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("run", options->run_id, "Id of the run")->required();
  command
      ->add_option("output,--output", options->directory, "Directory to write")
      ->required();
  command->add_option("--checkpoint", options->checkpoint,
                      "Id of a kept checkpoint, \"final\" for one; the newest "
                      "cut without it");
  command
      ->add_option("--weight_file_mb", options->weight_file_mb_max,
                   "Longest weight file in MB; more goes into several files "
                   "with an index")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->callback([&context, options] {
    context.action = [options](Context& context) {
      return Export(context, *options);
    };
  });
}

}  // namespace atl::cli
