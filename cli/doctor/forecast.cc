#include "cli/doctor/forecast.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr double kHoursADay = 24;

std::string DailyBytes(double bytes_per_hour) {
  return FormatBytes(
      static_cast<int64_t>(std::min(kHoursADay * bytes_per_hour, 9e18)));
}

}  // namespace

absl::StatusOr<DoctorForecast> MakeForecast(const v1::RunSpec& spec,
                                            const LinkFacts& link,
                                            double tokens_per_second) {
  if (!(tokens_per_second > 0)) {
    return absl::InvalidArgumentError("the speed is not known");
  }
  const worker::planner::Exchange exchange = worker::ExchangeOfRun(spec);
  worker::planner::Compute compute;
  compute.step_seconds =
      static_cast<double>(TokensAStep(spec)) / tokens_per_second;
  worker::planner::Link planned;
  planned.up_bytes_per_second = link.up_bytes_per_second;
  planned.down_bytes_per_second = link.down_bytes_per_second;
  planned.round_trip_seconds = link.round_trip_seconds;
  planned.payload_share = 1;  // Payload was measured.
  worker::planner::Service service = worker::MakeService(spec.durability());
  service.island_count = std::max(1, spec.schedule().island_count_min());
  DoctorForecast forecast;
  forecast.tokens_per_second = tokens_per_second;
  ASSIGN_OR_RETURN(forecast.plan,
                   worker::planner::Predict(
                       exchange, compute, planned,
                       worker::planner::OfIslands(service, exchange),
                       worker::MakeFlow(std::max(1, spec.server_count()))));
  return forecast;
}

Json ToData(const DoctorForecast& forecast) {
  Json data;
  data["round_seconds"] = forecast.plan.round_seconds;
  data["up_bytes_per_day"] = kHoursADay * forecast.plan.up_bytes_per_hour;
  data["down_bytes_per_day"] = kHoursADay * forecast.plan.down_bytes_per_hour;
  data["utilization"] = forecast.plan.utilization;
  data["tokens_per_second"] = forecast.tokens_per_second;
  return data;
}

std::string ToText(const DoctorForecast& forecast) {
  const double seconds = forecast.plan.round_seconds;
  Fields fields;
  fields.AddText(
      "forecast",
      absl::StrFormat(
          "a round takes %s; %s a day up, %s down; you would compute %.0f %% "
          "of the time, %s tokens a second",
          seconds < 10 ? absl::StrFormat("%.1fs", seconds)
                       : FormatSpan(absl::Seconds(seconds)),
          DailyBytes(forecast.plan.up_bytes_per_hour),
          DailyBytes(forecast.plan.down_bytes_per_hour),
          100 * forecast.plan.utilization,
          FormatCount(std::llround(forecast.tokens_per_second))));
  return fields.ToString();
}

}  // namespace atl::cli
