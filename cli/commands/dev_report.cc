#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/commands/dev_result.h"
#include "cli/flags/compute_flags.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

struct ReportOptions {
  std::string directory;
  std::string baseline;
  std::string output;
  std::string prompt = "#include <";
  int64_t sample_tokens = 300;
};

absl::StatusOr<double> ComputeLoss(const std::string& model,
                                   const std::string& data) {
  worker::EvaluateOptions evaluate;
  evaluate.model_directory = model;
  evaluate.data_path = data;
  evaluate.thread_count = ChooseThreadCount(0);
  ASSIGN_OR_RETURN(const worker::EvaluateResult result,
                   worker::Evaluate(evaluate));
  return result.loss;
}

Json ToSummary(const DevResult& result, double loss,
               std::optional<double> baseline_loss) {
  Json summary;
  summary["rounds"] = result.rounds;
  summary["inner_steps_per_island"] = result.inner_steps_per_island;
  summary["islands"] = result.islands;
  summary["outer_validation_loss"] = loss;
  summary["baseline_validation_loss"] =
      baseline_loss.has_value() ? Json(*baseline_loss) : Json(nullptr);
  summary["tokens_per_second"] = result.tokens_per_second;
  summary["bytes_up"] = result.bytes_up;
  summary["bytes_down"] = result.bytes_down;
  summary["checkpoint"] = result.checkpoint;
  summary["validation_file"] = result.validation_file;
  summary["parameters_sha256"] = result.parameters_sha256;
  return summary;
}

std::string ToReport(const DevResult& result, double loss,
                     std::optional<double> baseline_loss,
                     const std::string& sample) {
  Fields fields;
  fields.Add("islands, servers",
             absl::StrCat(result.islands, ", ", result.servers));
  fields.Add("rounds", absl::StrCat(result.rounds));
  fields.Add("inner steps an island",
             absl::StrCat(result.inner_steps_per_island));
  fields.Add("validation loss", absl::StrCat(FormatLoss(loss), " nats a byte"));
  if (baseline_loss.has_value()) {
    fields.Add("one island alone", absl::StrFormat("%s nats a byte, %+.4f",
                                                   FormatLoss(*baseline_loss),
                                                   *baseline_loss - loss));
  }
  fields.Add("tokens/s",
             FormatCount(static_cast<int64_t>(result.tokens_per_second)));
  fields.Add("seconds", absl::StrFormat("%.1f", result.seconds));
  fields.Add("bytes up", FormatBytes(result.bytes_up));
  fields.Add("bytes down", FormatBytes(result.bytes_down));
  fields.Add("model", result.checkpoint);
  fields.Add("held-out text", result.validation_file);
  fields.Add("sha256", result.parameters_sha256);
  return absl::StrCat(fields.ToString(), "\nIt writes:\n\n", sample, "\n");
}

absl::Status Report(Context& context, const ReportOptions& options) {
  ASSIGN_OR_RETURN(
      const DevResult result,
      ReadDevResult(absl::StrCat(options.directory, "/result.json")));
  if (result.checkpoint.empty() || result.validation_file.empty()) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            "the run in ", options.directory,
            " has no model or no held-out text; its state is ", result.state)),
        "Let `atoll dev up` finish a run that sets data.validation_fraction.");
  }
  if (!options.output.empty()) {
    RETURN_IF_ERROR(
        CheckReplaceable(options.output, ToSummary(result, 0, std::nullopt)));
  }
  ASSIGN_OR_RETURN(const double loss,
                   ComputeLoss(result.checkpoint, result.validation_file));
  std::optional<double> baseline_loss;
  if (!options.baseline.empty()) {
    ASSIGN_OR_RETURN(baseline_loss,
                     ComputeLoss(options.baseline, result.validation_file));
  }
  worker::GenerateOptions generate;
  generate.model_directory = result.checkpoint;
  generate.prompt = options.prompt;
  generate.seed = 1;
  generate.token_count_max = options.sample_tokens;
  ASSIGN_OR_RETURN(const std::string text, worker::Generate(generate));
  const Json summary = ToSummary(result, loss, baseline_loss);
  if (!options.output.empty()) {
    RETURN_IF_ERROR(WriteJson(options.output, summary));
  }
  context.output().Print(summary, ToReport(result, loss, baseline_loss,
                                           absl::StrCat(options.prompt, text)));
  return absl::OkStatus();
}

}  // namespace

void AddDevReport(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "report", "Evaluate the model of `dev up` and print a summary");
  command.Footer(
      "Example:\n  atoll dev report --dir /tmp/laptop --output summary.json");
  auto options = std::make_shared<ReportOptions>();
  command.Add("--dir", options->directory, "The --dir of `dev up`").Required();
  command.Add("--baseline", options->baseline,
              "Model of `dev baseline` to compare with");
  command.Add("--output", options->output,
              "File to write the summary to; may be an earlier "
              "summary, which is replaced, and no other file");
  command.Add("--prompt", options->prompt, "Text that the sample continues")
      .ShowDefault();
  command
      .Add("--sample-tokens", options->sample_tokens,
           "Length of the sample in tokens")
      .Check(flags::Positive())
      .ShowDefault();
  SetAction(command, context, Report, options);
}

}  // namespace atl::cli
