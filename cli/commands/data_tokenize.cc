#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/interrupt.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "worker/api/tokenize.h"

namespace atl::cli {
namespace {

absl::Status TokenizeData(Context& context,
                          const worker::TokenizeOptions& given) {
  Progress progress(context.progress_options, context.messages());
  Interrupt interrupt;
  worker::TokenizeOptions options = given;
  options.stop = interrupt.first();
  const auto show = ShowAfterASecond(progress);
  options.on_progress = [&](int64_t done, int64_t all) {
    show(absl::StrCat("read ", FormatBytes(done), " of ", FormatBytes(all)));
  };
  ASSIGN_OR_RETURN(const worker::TokenizeResult result,
                   worker::Tokenize(options));
  progress.Clear();
  Json data;
  data["output"] = options.output;
  data["files"] = result.output_file_count;
  data["tokens"] = result.token_count;
  data["token_bytes"] = result.token_bytes;
  data["vocab_size"] = result.vocab_size;
  data["document_token"] = result.document_token;
  Fields fields;
  fields.Add("tokens", FormatCount(result.token_count));
  fields.Add("input",
             absl::StrCat(FormatBytes(result.input_bytes), " in ",
                          FormatCount(result.input_file_count), " files"));
  fields.Add("before each file", result.document_token.empty()
                                     ? "nothing"
                                     : result.document_token);
  fields.Add("run file", absl::StrCat("[data] format = \"llmc\", path = \"",
                                      options.output,
                                      "\"; [model] vocab_size >= ",
                                      result.vocab_size));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddDataTokenize(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "tokenize", "Turn text into token files with a byte-level BPE");
  command.Footer(
      "The tokenizer is Hugging Face's tokenizer.json or a *.tiktoken file. "
      "It\n"
      "must split text with the regular expression of GPT-2 or Llama 3. The\n"
      "output has llm.c's format: uint16, or uint32 if the vocabulary has "
      "more\n"
      "than 65,536 tokens.\n"
      "Example:\n  atoll data tokenize --tokenizer tokenizer.json --input text "
      "--output tokens");
  auto options = std::make_shared<worker::TokenizeOptions>();
  command
      .Add("--tokenizer", options->tokenizer,
           "tokenizer.json, or a *.tiktoken file")
      .Required();
  command
      .Add("--input", options->input,
           "A text file, or a directory of text files")
      .Required();
  command.Add("--output", options->output, "Directory to write").Required();
  command.Add(
      "--document-token", options->document_token,
      "Token to put before each file; \"\": none. Default: <|endoftext|> or "
      "<|end_of_text|>, if the tokenizer has one");
  SetAction(command, context, TokenizeData, options);
}

}  // namespace atl::cli
