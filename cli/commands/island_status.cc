#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/layout/run_timing.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/commands.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

struct Wanted {
  std::string run_id;
  std::string island_id;
};

std::string DescribeIsland(const v1::Island& island) {
  const v1::ReportProgressRequest& progress = island.progress();
  Fields fields;
  fields.Add("island", island.island_id());
  fields.Add("slot", absl::StrCat(island.slot()));
  fields.Add("state", EnumName(island.state()));
  if (island.phase() != v1::ISLAND_PHASE_UNSPECIFIED) {
    fields.AddText("phase",
                   island.phase_reason().empty()
                       ? EnumName(island.phase())
                       : absl::StrCat(EnumName(island.phase()), ": ",
                                      island.phase_reason()));
  }
  if (progress.trainer_silence_seconds() > 0) {
    fields.AddText(
        "trainer",
        absl::StrCat(
            "has not answered for ",
            FormatSpan(absl::Seconds(progress.trainer_silence_seconds())),
            progress.trainer_silence_seconds() < kTrainerSilenceSecondsMin
                ? ""
                : ": look at its log; if it hangs, end it and start it "
                  "again"));
  }
  fields.Add("step", absl::StrCat(progress.step()));
  fields.Add("tokens/s",
             FormatCount(static_cast<int64_t>(progress.tokens_per_second())));
  if (progress.loss_step_count() > 0) {
    fields.Add("training loss", FormatLoss(progress.loss()));
  }
  const std::map<std::string, double> metrics(progress.metrics().begin(),
                                              progress.metrics().end());
  for (const auto& [name, mean] : metrics) {
    fields.Add(name, absl::StrFormat("%.6g", mean));
  }
  fields.Add("merged", absl::StrCat(island.merged_count()));
  fields.Add("not merged", absl::StrCat(island.unmerged_count()));
  const v1::IslandTotals& totals = island.totals();
  fields.AddText("tokens",
                 absl::StrCat(FormatCount(totals.merged_token_count()),
                              " merged, ",
                              FormatCount(totals.unmerged_token_count()),
                              " not merged, ",
                              FormatCount(totals.unpushed_token_count()),
                              " never pushed"));
  if (island.has_sitting_out()) {
    const v1::SittingOut& sitting = island.sitting_out();
    fields.AddText("refused",
                   DescribeSittingOut(sitting, sitting.until_commit_seq()));
  }
  if (island.has_leave()) {
    fields.AddText("left", DescribeLeave(island.leave()));
  }
  fields.Add("bytes up", FormatBytes(progress.sent_bytes()));
  fields.Add("bytes down", FormatBytes(progress.received_bytes()));
  fields.Add("last heard",
             island.has_last_heard_time()
                 ? FormatTimestamp(FromProto(island.last_heard_time()))
                 : "-");
  return fields.ToString();
}

absl::Status ShowIsland(Context& context, const Wanted& wanted) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  ASSIGN_OR_RETURN(const v1::Island island,
                   client->FindIsland(wanted.run_id, wanted.island_id));
  context.output().Print(ToJson(island), DescribeIsland(island));
  return absl::OkStatus();
}

}  // namespace

void AddIslandStatus(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("status", "Show an island: its state, speed and trainer");
  command.Footer("Example:\n  atoll island status laptop kitchen");
  auto wanted = std::make_shared<Wanted>();
  command.Add("run", wanted->run_id, "Id of the run").Required();
  command.Add("island", wanted->island_id, "Id of the island").Required();
  SetAction(command, context, ShowIsland, wanted);
}

}  // namespace atl::cli
