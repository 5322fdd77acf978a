#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/flags/compute_flags.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/interrupt.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/run_file/complete_spec.h"
#include "cli/run_file/load.h"
#include "worker/api/model_files.h"
#include "worker/api/train_alone.h"

namespace atl::cli {
namespace {

struct BaselineOptions {
  std::string file;
  RunFileChanges changes;
  std::string output;
  int threads = 0;
  std::string device;
};

absl::Status Baseline(Context& context, const BaselineOptions& options) {
  RETURN_IF_ERROR(CheckDeviceFlag(options.device));
  Progress progress(context.progress_options, context.messages());
  Interrupt interrupt;
  ASSIGN_OR_RETURN(RunFile run, LoadRunFile(options.file, options.changes));
  RETURN_IF_ERROR(RefuseExternal(run, "`atoll dev baseline`"));
  const worker::StoreOpener open_store =
      MakeStoreOpener(context.environment,
                      {.proxy = context.settings.proxy()});
  RETURN_IF_ERROR(CompleteSpec(&run, open_store));
  worker::TrainAloneOptions train;
  train.spec = run.spec;
  train.thread_count = ChooseThreadCount(options.threads);
  train.device = options.device;
  train.one_data_shard = true;
  train.stop = interrupt.first();
  train.data.open_store = open_store;
  train.data.cache_directory = DefaultDataCache(context.state_directory);
  train.on_progress = [&](const worker::TrainAloneProgress& at) {
    progress.Update(
        absl::StrCat("alone: inner step ", at.step, "/", at.step_count, "  ",
                     FormatCount(static_cast<int64_t>(at.tokens_per_second)),
                     " tokens/s  loss ", FormatLoss(at.loss)),
        absl::Now());
  };
  ASSIGN_OR_RETURN(const worker::TrainAloneResult result,
                   worker::TrainAlone(train));
  progress.Clear();
  ASSIGN_OR_RETURN(
      const std::string sha256,
      worker::SaveModel(run.spec, result.parameters, options.output));
  Json data;
  data["checkpoint"] = options.output;
  data["inner_steps"] = result.step_count;
  data["tokens_per_second"] = result.tokens_per_second;
  data["parameters_sha256"] = sha256;
  Fields fields;
  fields.Add("inner steps", FormatCount(result.step_count));
  fields.Add("tokens/s",
             FormatCount(static_cast<int64_t>(result.tokens_per_second)));
  fields.Add("model", options.output);
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddDevBaseline(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "baseline", "Train the same model alone, to compare a run with");
  command.Footer(
      "Takes as many inner steps as each island of the run, on all of the\n"
      "training text, without a coordinator or servers.\n"
      "Example:\n  atoll dev baseline laptop --output alone");
  auto options = std::make_shared<BaselineOptions>();
  command.Add("file", options->file, "Run file, or a preset's name").Required();
  command.Add("--output", options->output, "Directory to write").Required();
  command.Add("--tokens", options->changes.tokens,
              "Take as many steps as a run of this many tokens (20B), "
              "instead of the file's length");
  command.Add("--data", options->changes.data_path,
              "Path of the data, instead of the file's");
  AddThreadsFlag(command, options->threads);
  AddDeviceFlag(command, "this command", options->device);
  SetAction(command, context, Baseline, options);
}

}  // namespace atl::cli
