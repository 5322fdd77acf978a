#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status/status_macros.h"
#include "cli/commands/checkpoint/checkpoint_commands.h"
#include "cli/mirror/mirror_choice.h"
#include "cli/interrupt.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

absl::Status List(Context& context, const MirrorChoice& choice) {
  Interrupt interrupt;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   OpenMirror(context, choice.url, interrupt.first()));
  ASSIGN_OR_RETURN(const std::vector<mirror::CheckpointPlace> places,
                   FindPlaces(*store, choice));
  Json items = Json::array();
  Table table({"RUN", "RUN_UID", ">CHECKPOINT", "TIME", ">SIZE", "STATE"});
  std::vector<std::string> problems;
  for (const mirror::CheckpointPlace& place : places) {
    if (interrupt.first().stop_requested()) {
      return absl::CancelledError("the list was stopped");
    }
    ASSIGN_OR_RETURN(const std::optional<FoundCheckpoint> found,
                     ReadFound(*store, place));
    if (!found.has_value()) continue;
    const Json item = DescribeFound(*found);
    items.push_back(item);
    if (found->checkpoint == nullptr) {
      table.AddRow({"", place.run_uid, FormatPlace(place), "", "", "UNUSABLE"});
      problems.emplace_back(found->problem.message());
      continue;
    }
    const storage::v1::MirrorManifest& manifest = found->checkpoint->manifest();
    table.AddRow({manifest.run_id(), place.run_uid, FormatPlace(place),
                  item["create_time"].get<std::string>(),
                  FormatBytes(found->checkpoint->PartBytes()),
                  manifest.pin().suspect() ? "SUSPECT" : "OK"});
  }
  context.output().PrintList("checkpoints", items, table.ToString());
  for (const std::string& problem : problems) {
    context.output().Message(problem);
  }
  return absl::OkStatus();
}

}  // namespace

void AddCheckpointList(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("list", "List the checkpoints in a mirror");
  command.Footer(
      "Reads the mirror only, without a cluster. CHECKPOINT is the epoch of "
      "the run and\n"
      "the first commit that the checkpoint lacks. A SUSPECT checkpoint holds "
      "commits\n"
      "outside the run's band. UNUSABLE: this program cannot use its "
      "manifest. OK says\n"
      "nothing about the parts: `atoll checkpoint verify` reads them.\n"
      "Example:\n  atoll checkpoint list s3://models/atoll");
  auto choice = std::make_shared<MirrorChoice>();
  AddMirrorUrl(command, *choice);
  AddMirrorRun(command, *choice);
  SetAction(command, context, List, choice);
}

}  // namespace atl::cli
