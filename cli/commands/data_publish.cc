#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "worker/api/publish_data.h"

namespace atl::cli {
namespace {

struct Options {
  worker::PublishOptions publish;
  std::string format;
  std::string shard_bytes;
};

std::string Describe(int64_t files, int64_t tokens) {
  return absl::StrCat(FormatCount(tokens), " in ", FormatCount(files),
                      " files");
}

void Print(Context& context, const worker::PublishResult& result) {
  const std::string format = worker::GetFormatWord(result.format);
  Json data;
  data["url"] = result.url;
  data["fingerprint"] = result.fingerprint;
  data["format"] = format;
  data["files"] = result.file_count;
  data["held_out_files"] = result.held_out_file_count;
  data["uploaded_files"] = result.uploaded_file_count;
  data["tokens"] = result.token_count;
  data["held_out_tokens"] = result.held_out_token_count;
  data["smallest_file_tokens"] = result.smallest_token_count;
  Fields fields;
  fields.Add("format", format);
  fields.Add("tokens to train on",
             Describe(result.file_count - result.held_out_file_count,
                      result.token_count - result.held_out_token_count));
  fields.Add("tokens held out",
             Describe(result.held_out_file_count, result.held_out_token_count));
  fields.Add("smallest file",
             absl::StrCat(FormatCount(result.smallest_token_count),
                          " tokens; [model] sequence_length must be less"));
  fields.Add("uploaded", absl::StrCat(FormatCount(result.uploaded_file_count),
                                      " files; the others were there"));
  fields.Add("fingerprint", result.fingerprint);
  fields.Add("run file", absl::StrCat("[data] url = \"", result.url,
                                      "\", order = \"by_file\""));
  context.output().Print(data, fields.ToString());
}

absl::Status Publish(Context& context, const Options& given) {
  worker::PublishOptions options = given.publish;
  if (!given.format.empty()) {
    ASSIGN_OR_RETURN(options.format, worker::ParseFormatWord(given.format));
  }
  if (!given.shard_bytes.empty()) {
    absl::StatusOr<int64_t> bytes = ParseBytes(given.shard_bytes);
    if (!bytes.ok()) return WithContext(bytes.status(), "--shard-bytes");
    options.shard_bytes = *bytes;
  }
  options.open_store =
      MakeStoreOpener(context.environment,
                      {.proxy = context.settings.proxy()});
  Progress progress(context.progress_options, context.messages());
  Interrupt interrupt;
  options.stop = interrupt.first();
  const auto show = ShowAfterASecond(progress);
  options.on_progress = [&](int64_t done, int64_t all) {
    show(absl::StrCat(done <= all / 2 ? "hashed " : "uploaded ",
                      FormatBytes(done <= all / 2 ? done : done - all / 2),
                      " of ", FormatBytes(all / 2)));
  };
  ASSIGN_OR_RETURN(const worker::PublishResult result,
                   worker::PublishData(options));
  progress.Clear();
  Print(context, result);
  return absl::OkStatus();
}

}  // namespace

void AddDataPublish(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "publish", "Upload data, so that islands of a run fetch it");
  command.Footer(
      "Islands fetch the files that they read, one after the other. The\n"
      "manifest, which is written last, has the size and SHA-256 of each.\n"
      "Without --held-out-file the last files are held out for evaluations.\n"
      "The same command continues after a stop. A published directory never\n"
      "changes: publish other data to another one.\n"
      "Examples:\n"
      "  atoll data publish tokens --to s3://bucket/tokens\n"
      "  atoll data publish book.txt --to file:///srv/book --shard-bytes 1MB");
  auto options = std::make_shared<Options>();
  worker::PublishOptions& publish = options->publish;
  command.Add("input", publish.input, "A directory, or one file").Required();
  command
      .Add("--to", publish.to,
           "s3://BUCKET/PREFIX or file:///DIR to publish to")
      .Required();
  command
      .Add("--format", options->format,
           "bytes, llmc or uint16; default: llmc if there is a *.bin, "
           "otherwise bytes")
      .Check(flags::IsMember({"bytes", "llmc", "uint16"}));
  const flags::Flag fraction =
      command
          .Add("--held-out", publish.held_out_fraction,
               "Share of the tokens to hold out; 0: nothing")
          .Check(flags::Range(0.0, 0.99))
          .ShowDefault();
  command
      .Add("--held-out-file", publish.held_out_files,
           "Path in the input of a file to hold out; may be repeated")
      .Excludes(fraction);
  command.Add("--shard-bytes", options->shard_bytes,
              "Split larger files between tokens: 64MB");
  command.AddFlag("--verify", publish.verify,
                  "Read files that are there already, and replace those that "
                  "differ");
  SetAction(command, context, Publish, options);
}

}  // namespace atl::cli
