// Forecasts an island's work: the planner's forecast for the link and the speed
// that `atoll doctor` has measured. Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "cli/output/output.h"
#include "worker/api/planner.h"

namespace atl::cli {

// The link to the gate, which stands for the links to the servers.
struct LinkFacts {
  double up_bytes_per_second = 0;  // Payload.
  double down_bytes_per_second = 0;
  double round_trip_seconds = 0;
};

struct DoctorForecast {
  worker::planner::Forecast plan;
  double tokens_per_second = 0;  // While it trains.
};

// The forecast for a run with the fewest islands that it permits. `spec` may be
// a RunPreview's.
// INVALID_ARGUMENT: something was not measured, or the spec is not complete.
absl::StatusOr<DoctorForecast> MakeForecast(const v1::RunSpec& spec,
                                            const LinkFacts& link,
                                            double tokens_per_second);

// {"round_seconds", "up_bytes_per_day", "down_bytes_per_day", "utilization",
// "tokens_per_second"}
Json ToData(const DoctorForecast& forecast);

// "A round takes 9m00s; 4.1 GB a day up, 1.2 GB down; ..."
std::string ToText(const DoctorForecast& forecast);

}  // namespace atl::cli
