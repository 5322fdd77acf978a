#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/checkpoint/checkpoint_commands.h"
#include "cli/mirror/mirror_choice.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// Reads the checkpoint at `place` whole, and sets its problem. nullopt: its run
// has removed it meanwhile.
absl::StatusOr<std::optional<FoundCheckpoint>> Check(
    ObjectStore& store, const mirror::CheckpointPlace& place,
    const std::function<void(const std::string&)>& show,
    const std::stop_token& stop) {
  ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> found,
                   ReadFound(store, place));
  if (!found.has_value() || found->checkpoint == nullptr) return found;
  const mirror::MirroredCheckpoint& checkpoint = *found->checkpoint;
  RETURN_IF_ERROR(CheckMemoryFor(
      checkpoint.ThetaBytesMax(),
      absl::StrCat("a part of checkpoint ", FormatPlace(place))));
  const std::string total = FormatBytes(checkpoint.PartBytes());
  const absl::Status read = checkpoint.Read({}, [&](int64_t done) {
    if (stop.stop_requested()) {
      return absl::CancelledError("the check was stopped");
    }
    show(absl::StrCat("verify ", checkpoint.manifest().run_id(), " ",
                      FormatPlace(place), "  ", FormatBytes(done), " of ",
                      total));
    return absl::OkStatus();
  });
  if (read.ok()) return found;
  if (!IsDamage(read) && !absl::IsNotFound(read)) return read;
  // A run removes the manifest before the parts.
  ASSIGN_OR_RETURN(const bool removed, WasRemoved(store, place));
  if (removed) return std::nullopt;
  found->problem = read;
  return found;
}

absl::Status Verify(Context& context, const MirrorChoice& choice) {
  Interrupt interrupt;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   OpenMirror(context, choice.url, interrupt.first()));
  ASSIGN_OR_RETURN(const std::vector<mirror::CheckpointPlace> places,
                   FindPlaces(*store, choice));
  Progress progress(context.progress_options, context.messages());
  const auto show = ShowAfterASecond(progress);
  Json items = Json::array();
  Table table({"RUN", "RUN_UID", ">CHECKPOINT", ">SIZE", "RESULT"});
  std::vector<std::string> problems;
  for (const mirror::CheckpointPlace& place : places) {
    ASSIGN_OR_RETURN(const std::optional<FoundCheckpoint> found,
                     Check(*store, place, show, interrupt.first()));
    if (!found.has_value()) {
      progress.Note(absl::StrCat("the run has removed checkpoint ",
                                 FormatPlace(place), " meanwhile"));
      continue;
    }
    const Json item = DescribeFound(*found);
    items.push_back(item);
    table.AddRow({item["run_id"].get<std::string>(), place.run_uid,
                  FormatPlace(place),
                  FormatBytes(item["size_bytes"].get<int64_t>()),
                  found->problem.ok() ? "OK" : "DAMAGED"});
    if (!found->problem.ok()) problems.emplace_back(found->problem.message());
  }
  progress.Clear();
  Json data;
  data["checkpoints"] = items;
  if (problems.empty()) {
    context.output().Print(data, table.ToString());
    return absl::OkStatus();
  }
  for (const std::string& problem : problems) {
    context.output().Message(problem);
  }
  const absl::Status damaged = WithHint(
      WithReason(absl::DataLossError(absl::StrCat(
                     problems.size(), " of ", items.size(),
                     " checkpoints cannot be used: ", problems[0])),
                 "CHECKPOINT_DAMAGED"),
      problems.size() < items.size()
          ? "Name one that is OK with --checkpoint: `atoll checkpoint export`."
          : "The run's next checkpoint is a new one: verify it.");
  context.output().PrintFailed(data, table.ToString(), damaged);
  return damaged;
}

}  // namespace

void AddCheckpointVerify(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "verify", "Read checkpoints of a mirror whole, and check them");
  command.Footer(
      "Checks the manifest, size, SHA-256 and header of each part, and the "
      "digests of\n"
      "the parameters, without a cluster. Exit code 5: a checkpoint is "
      "damaged.\n"
      "Examples:\n"
      "  atoll checkpoint verify s3://models/atoll\n"
      "  atoll checkpoint verify file:///mnt/atoll --run spring --checkpoint "
      "1/40");
  auto choice = std::make_shared<MirrorChoice>();
  AddMirrorUrl(command, *choice);
  AddMirrorRun(command, *choice);
  AddMirrorCheckpoint(command, *choice,
                      "EPOCH/COMMIT, as `atoll checkpoint list` shows it; "
                      "default: all");
  SetAction(command, context, Verify, choice);
}

}  // namespace atl::cli
