#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mirror/mirror_manifest.h"
#include "base/status/status_macros.h"
#include "cli/commands/checkpoint/checkpoint_commands.h"
#include "cli/mirror/mirror_choice.h"
#include "cli/commands/run/export_target.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

struct Options {
  MirrorChoice choice;
  ExportTarget target;
};

absl::Status Export(Context& context, const Options& flags) {
  Interrupt interrupt;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   OpenMirror(context, flags.choice.url, interrupt.first()));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<mirror::MirroredCheckpoint> checkpoint,
      OpenOne(*store, flags.choice));
  const storage::v1::MirrorManifest& manifest = checkpoint->manifest();
  const std::string at = FormatPlace(mirror::GetPlace(manifest));
  RETURN_IF_ERROR(CheckMemoryFor(
      checkpoint->layout().element_count() *
              static_cast<int64_t>(sizeof(float)) +
          checkpoint->ThetaBytesMax(),
      absl::StrCat("the export of checkpoint ", at)));
  Progress progress(context.progress_options, context.messages());
  const auto show = ShowAfterASecond(progress);
  worker::ExportModelOptions options = MakeModelOptions(flags.target);
  options.stop = interrupt.first();
  options.on_progress = [&](int64_t done, int64_t total) {
    show(DescribeExport(manifest.run_id(), done, total));
  };
  const absl::StatusOr<worker::ExportedModel> model =
      worker::ExportModel(*checkpoint, options);
  progress.Clear();
  if (absl::IsDataLoss(model.status())) {
    return WithHint(model.status(),
                    absl::StrCat("`atoll checkpoint verify ",
                                 store->GetUrl(""),
                                 "` says which checkpoints are whole; name one "
                                 "with --checkpoint."));
  }
  if (!model.ok()) return WithExportHint(model.status());
  if (manifest.pin().suspect()) {
    context.output().Message(absl::StrCat(
        "checkpoint ", at,
        " is SUSPECT: it holds commits outside the run's band"));
  }
  Json data;
  data["run_id"] = manifest.run_id();
  data["run_uid"] = manifest.run_uid();
  data["checkpoint"] = at;
  PrintExported(context, std::move(data),
                MakeExported(options, manifest.pin().commit_seq(), *model),
                !flags.target.template_directory.empty());
  return absl::OkStatus();
}

}  // namespace

void AddCheckpointExport(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "export",
      "Write a checkpoint of a mirror as a model directory (safetensors)");
  command.Footer(
      "Writes the files of `atoll run export`, without a cluster. Each part is "
      "checked\n"
      "as by `atoll checkpoint verify`. The directory may have other files: "
      "they stay.\n"
      "A file in the way is an error.\n"
      "Examples:\n"
      "  atoll checkpoint export s3://models/atoll --output model\n"
      "  atoll checkpoint export file:///mnt/atoll --run spring --output "
      "model");
  auto options = std::make_shared<Options>();
  AddMirrorUrl(command, options->choice);
  AddExportTarget(command, options->target);
  AddMirrorRun(command, options->choice);
  AddMirrorCheckpoint(command, options->choice,
                      "EPOCH/COMMIT, as `atoll checkpoint list` shows it; "
                      "default: the newest");
  SetAction(command, context, Export, options);
}

}  // namespace atl::cli
