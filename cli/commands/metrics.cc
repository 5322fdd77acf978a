#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/commands.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

struct MetricsOptions {
  std::string run_id;
  std::vector<std::string> names;
};

absl::Status GetMetrics(Context& context, const MetricsOptions& options) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  v1::GetMetricsRequest request;
  request.set_run_id(options.run_id);
  for (const std::string& name : options.names) request.add_names(name);
  const absl::StatusOr<v1::GetMetricsResponse> response =
      client->Call(&v1::TrainingStateService::Stub::GetMetrics, request);
  if (absl::IsInvalidArgument(response.status())) {
    return WithHint(response.status(),
                    absl::StrCat("`atoll metrics ", options.run_id,
                                 "` lists the names."));
  }
  RETURN_IF_ERROR(response.status());
  Table table({"NAME", "UNIT", ">POINTS", ">LAST", ">COMMIT", "TIME"});
  Json items = Json::array();
  for (const v1::MetricSeries& series : response->series()) {
    items.push_back(ToJson(series));
    std::vector<std::string> cells = {series.name(), series.unit(),
                                      absl::StrCat(series.points_size())};
    if (series.points_size() > 0) {
      const v1::MetricPoint& last = *series.points().rbegin();
      cells.push_back(absl::StrFormat("%.6g", last.value()));
      cells.push_back(absl::StrCat(last.commit_seq()));
      cells.push_back(FormatTimestamp(FromProto(last.time())));
    }
    table.AddRow(std::move(cells));
  }
  Json restores = Json::array();
  std::string text = table.ToString();
  for (const v1::Restore& restore : response->restores()) {
    restores.push_back(ToJson(restore));
    absl::StrAppend(&text, "restored ", DescribeRestore(restore), "\n");
  }
  if (context.output().format() == OutputFormat::kJsonl) {
    context.output().PrintList("series", items, text);
  } else {
    context.output().Print({{"series", items}, {"restores", restores}}, text);
  }
  return absl::OkStatus();
}

}  // namespace

void AddMetrics(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("metrics", "Show a run's time series");
  command.Footer(
      "Shows the newest point of each series; -o json has all kept points.\n"
      "The coordinator keeps the newest 4096. Those that do not come from\n"
      "rounds (islands, throughput, shards, wire) start over when it "
      "restarts.\n"
      "Examples:\n  atoll metrics laptop\n"
      "  atoll metrics laptop --name loss_metrics/global_avg_loss -o json");
  auto options = std::make_shared<MetricsOptions>();
  command.Add("run", options->run_id, "Id of the run").Required();
  command
      .Add("--name", options->names,
           "Name of a series; may be repeated; default: all")
      .OneEach();
  SetAction(command, context, GetMetrics, options);
}

}  // namespace atl::cli
