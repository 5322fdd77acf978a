#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/flags/compute_flags.h"
#include "cli/interrupt.h"
#include "cli/output/output.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

absl::Status Generate(Context& context, const worker::GenerateOptions& given) {
  Interrupt interrupt;
  worker::GenerateOptions options = given;
  options.thread_count = ChooseThreadCount(given.thread_count);
  options.stop = interrupt.first();
  ASSIGN_OR_RETURN(const std::string text, worker::Generate(options));
  Json data;
  data["prompt"] = options.prompt;
  data["text"] = text;
  data["seed"] = options.seed;
  context.output().Print(data, absl::StrCat(options.prompt, text, "\n"));
  return absl::OkStatus();
}

}  // namespace

void AddGenerate(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("generate", "Generate text with an exported model");
  command.Footer(
      "The same model, prompt, seed and temperature give the same text.\n"
      "Example:\n  atoll generate --model model --prompt '#include <' "
      "--seed 1");
  auto options = std::make_shared<worker::GenerateOptions>();
  command
      .Add("--model", options->model_directory,
           "Directory of the exported model")
      .Required();
  command.Add("--prompt", options->prompt, "Text to continue").Required();
  command.Add(
      "--tokenizer", options->tokenizer,
      "tokenizer.json or *.tiktoken; default: the model's own, else bytes");
  command.Add("--seed", options->seed, "Seed of the sampling").ShowDefault();
  command
      .Add("--max-tokens", options->token_count_max,
           "Tokens to generate, at most")
      .Check(flags::Positive())
      .ShowDefault();
  command
      .Add("--temperature", options->temperature,
           "0: always the likeliest token; 1: the model's distribution")
      .Check(flags::NotNegative())
      .ShowDefault();
  options->thread_count = 0;
  AddThreadsFlag(command, options->thread_count);
  SetAction(command, context, Generate, options);
}

}  // namespace atl::cli
