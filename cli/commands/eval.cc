#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/flags/compute_flags.h"
#include "cli/interrupt.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

struct EvalOptions {
  worker::EvaluateOptions evaluate;
  std::string data_format = "bytes";
};

v1::DataFormat ParseFormat(const std::string& name) {
  if (name == "llmc") return v1::DATA_FORMAT_LLMC;
  if (name == "uint16") return v1::DATA_FORMAT_UINT16;
  return v1::DATA_FORMAT_BYTES;
}

absl::Status Eval(Context& context, const EvalOptions& options) {
  Progress progress(context.progress_options, context.messages());
  Interrupt interrupt;
  worker::EvaluateOptions evaluate = options.evaluate;
  evaluate.format = ParseFormat(options.data_format);
  evaluate.thread_count = ChooseThreadCount(evaluate.thread_count);
  evaluate.stop = interrupt.first();
  const auto show = ShowAfterASecond(progress);
  evaluate.on_progress = [&](int64_t done, int64_t all) {
    show(absl::StrCat("evaluated ", FormatCount(done), " of ",
                      FormatCount(all), " tokens"));
  };
  ASSIGN_OR_RETURN(const worker::EvaluateResult result,
                   worker::Evaluate(evaluate));
  progress.Clear();
  Json data;
  data["loss"] = result.loss;
  data["tokens"] = result.tokens;
  Fields fields;
  fields.Add("loss", absl::StrCat(FormatLoss(result.loss), " nats a token"));
  fields.Add("tokens", FormatCount(result.tokens));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddEval(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("eval", "Compute a model's loss on data");
  command.Footer(
      "Reads windows [kT, kT + T] of the data, where T is the model's "
      "sequence\n"
      "length. The inputs are the first T tokens, the targets the last T.\n"
      "Tokens after the last whole window are dropped.\n"
      "Example:\n  atoll eval --model model --data held-out.txt -o json");
  auto options = std::make_shared<EvalOptions>();
  command
      .Add("--model", options->evaluate.model_directory,
           "Directory of the exported model")
      .Required();
  command.Add("--data", options->evaluate.data_path, "A file, or a directory")
      .Required();
  command
      .Add("--data-format", options->data_format,
           "bytes (one token each), llmc or uint16")
      .Check(flags::IsMember({"bytes", "llmc", "uint16"}))
      .ShowDefault();
  options->evaluate.thread_count = 0;
  AddThreadsFlag(command, options->evaluate.thread_count);
  SetAction(command, context, Eval, options);
}

}  // namespace atl::cli
