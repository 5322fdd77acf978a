#include <cstdint>
#include <iostream>
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

struct GenerateOptions {
  std::string model;
  std::string prompt;
  std::string tokenizer;
  uint64_t seed = 0;
  int64_t max_tokens = 200;
  double temperature = 0.8;
  int threads = 0;
};

absl::Status Generate(Context& context, const GenerateOptions& options) {
  Interrupt interrupt;
  worker::GenerateOptions generate;
  generate.model_directory = options.model;
  generate.prompt = options.prompt;
  generate.tokenizer = options.tokenizer;
  generate.seed = options.seed;
  generate.temperature = options.temperature;
  generate.token_count_max = options.max_tokens;
  generate.thread_count = ChooseThreadCount(options.threads);
  generate.stop = interrupt.first();
  ASSIGN_OR_RETURN(const std::string text, worker::Generate(generate));
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
  auto options = std::make_shared<GenerateOptions>();
  command.Add("--model", options->model, "Directory of the exported model")
      .Required();
  command.Add("--prompt", options->prompt, "Text to continue").Required();
  command.Add(
      "--tokenizer", options->tokenizer,
      "tokenizer.json or *.tiktoken; default: the model's own, else bytes");
  command.Add("--seed", options->seed, "Seed of the sampling").ShowDefault();
  command
      .Add("--max-tokens", options->max_tokens, "Tokens to generate, at most")
      .Check(flags::Positive())
      .ShowDefault();
  command
      .Add("--temperature", options->temperature,
           "0: always the likeliest token; 1: the model's distribution")
      .Check(flags::NotNegative())
      .ShowDefault();
  AddThreadsFlag(command, options->threads);
  SetAction(command, context, Generate, options);
}

}  // namespace atl::cli
