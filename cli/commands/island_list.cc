#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/commands.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// The time of day alone within the last day, so that the table fits a terminal.
std::string FormatHeard(const v1::Island& island) {
  if (!island.has_last_heard_time()) return "-";
  const absl::Time time = FromProto(island.last_heard_time());
  return absl::FormatTime(
      absl::Now() - time < absl::Hours(24) ? "%H:%M:%SZ" : "%Y-%m-%d", time,
      absl::UTCTimeZone());
}

absl::Status ListIslands(Context& context, const std::string& run_id) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  Table table({"SLOT", "ISLAND", "STATE", ">STEP", ">STEPS/S", ">LOSS",
               ">MERGED", ">OTHER", "HEARD"});
  Fields notes;
  Json islands = Json::array();
  v1::ListIslandsRequest request;
  request.set_run_id(run_id);
  request.set_page_size(500);
  do {
    ASSIGN_OR_RETURN(
        v1::ListIslandsResponse response,
        client->Call(&v1::TrainingStateService::Stub::ListIslands, request));
    for (const v1::Island& island : response.islands()) {
      islands.push_back(ToJson(island));
      const v1::ReportProgressRequest& progress = island.progress();
      table.AddRow(
          {absl::StrCat(island.slot()), island.island_id(),
           DescribeWork(island), absl::StrCat(progress.step()),
           island.steps_per_second() > 0
               ? absl::StrFormat("%.3g", island.steps_per_second())
               : "-",
           progress.loss_step_count() > 0 ? FormatLoss(progress.loss()) : "-",
           absl::StrCat(island.merged_count()),
           absl::StrCat(island.unmerged_count()),
           FormatHeard(island)});
      if (island.phase() == v1::ISLAND_PHASE_DATA ||
          island.phase() == v1::ISLAND_PHASE_PAUSED ||
          island.phase() == v1::ISLAND_PHASE_NO_TRAINER) {
        notes.AddText(island.island_id(), island.phase_reason());
      }
      if (island.has_sitting_out()) {
        const v1::SittingOut& sitting = island.sitting_out();
        notes.AddText(island.island_id(),
                      DescribeSittingOut(sitting, sitting.until_commit_seq()));
      }
      if (island.has_leave()) {
        notes.AddText(island.island_id(),
                      absl::StrCat("left: ", DescribeLeave(island.leave())));
      }
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  if (table.empty()) context.output().Message("no islands");
  context.output().PrintList("islands", islands,
                             table.empty()
                                 ? ""
                                 : table.ToString() + notes.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddIslandList(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("list", "List the islands of a run, lost ones too");
  command.Footer(
      "The STATE of a READY island is its work at present: WAIT for a round,\n"
      "TRAIN, UPLOAD, PULL, wait for DATA, PAUSED by its user, NO_TRAINER.\n"
      "STEPS/S is what the coordinator measures, waits and exchange included.\n"
      "OTHER counts contributions that were not merged. An island that cannot\n"
      "train, has left, or whose contribution was refused, has a line below.\n"
      "More: atoll island status.\n"
      "Example:\n  atoll island list laptop");
  auto run_id = std::make_shared<std::string>();
  command.Add("run", *run_id, "Id of the run").Required();
  SetAction(command, context, ListIslands, run_id);
}

}  // namespace atl::cli
