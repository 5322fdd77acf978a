#include "cli/commands/run/export_target.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/io/files.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {

void AddExportTarget(flags::Command& command, ExportTarget& target) {
  command.Add("output,--output", target.directory, "Directory to write")
      .Required();
  command.AddFlag("--force", target.force,
                  "Replace the export of another run or commit; other files "
                  "are never replaced");
  command.Add("--template", target.template_directory,
              "Directory of a model or an adapter to fill with the run's "
              "values");
  command
      .Add("--weight-file-mb", target.weight_file_mb_max,
           "Largest weight file in MB; a larger model gets several "
           "files and an index")
      .Check(flags::Range(1, 1000000))
      .ShowDefault();
}

worker::ExportModelOptions MakeModelOptions(const ExportTarget& target) {
  worker::ExportModelOptions options;
  options.directory = AbsolutePath(target.directory);
  options.weight_file_bytes_max = target.weight_file_mb_max * 1000000;
  options.replaces_other = target.force;
  options.template_directory = target.template_directory;
  return options;
}

absl::Status WithExportHint(const absl::Status& status) {
  if (GetReason(status) != "EXPORT_DIFFERS") return status;
  return WithHint(status,
                  "`--force` replaces that export, and no other file.");
}

Exported MakeExported(const worker::ExportModelOptions& options,
                      int64_t commit_seq, const worker::ExportedModel& model) {
  return {.directory = options.directory,
          .parameters_sha256 = model.parameters_sha256,
          .commit_seq = commit_seq,
          .size_bytes = model.size_bytes,
          .received_bytes = model.received_bytes,
          .template_use = model.template_use};
}

void PrintExported(Context& context, Json data, const Exported& exported,
                   bool has_template) {
  const worker::TemplateUse& use = exported.template_use;
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
  if (has_template) {
    data["template"] = {{"filled_count", use.filled_count},
                        {"kept_count", use.kept_count},
                        {"tied", use.tied},
                        {"left_out", use.left_out}};
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
}

std::string DescribeExport(absl::string_view run_id, int64_t done_bytes,
                           int64_t total_bytes) {
  return absl::StrCat("export ", run_id, "  ", FormatBytes(done_bytes), " of ",
                      FormatBytes(total_bytes));
}

}  // namespace atl::cli
