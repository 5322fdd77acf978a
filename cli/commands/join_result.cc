#include "cli/commands/join_result.h"

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/obs/latency_histogram.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"
#include "cli/volunteer/local_status.h"

namespace atl::cli {
namespace {

// Units: bytes per second, and seconds. null: not measured.
Json ToData(const worker::IslandMeasurements& measured) {
  const auto rate = [](const worker::Measured& m) {
    return m.seconds > 0 ? Json(static_cast<double>(m.bytes) / m.seconds)
                         : Json(nullptr);
  };
  Json data;
  data["up_bytes_per_second"] = rate(measured.pushed);
  data["down_bytes_per_second"] = rate(measured.pulled);
  data["round_trip_seconds"] = measured.round_trip_seconds > 0
                                   ? Json(measured.round_trip_seconds)
                                   : Json(nullptr);
  return data;
}

// RFC 3339, to the microsecond.
Json TimeToData(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

}  // namespace

Json ToData(const worker::IslandProgress& at, const std::string& run_id,
            const std::string& island_id) {
  Json data;
  data["run_id"] = run_id;
  data["island_id"] = island_id;
  data["slot"] = at.slot;
  data["version"] = at.version;
  data["step"] = at.step;
  data["token_count"] = at.token_count;
  data["tokens_per_second"] = at.tokens_per_second;
  data["loss"] = at.loss;
  data["sent_bytes"] = at.sent_bytes;
  data["received_bytes"] = at.received_bytes;
  data["saved_bytes"] = at.saved_bytes;
  data["utilization"] = at.utilization;
  data["computing_seconds"] = absl::ToDoubleSeconds(at.computing);
  const bool has_trained = at.training_begin_time <= at.training_end_time;
  data["training_begin_time"] =
      has_trained ? TimeToData(at.training_begin_time) : Json(nullptr);
  data["training_end_time"] =
      has_trained ? TimeToData(at.training_end_time) : Json(nullptr);
  data["pauses"] = Json::array();
  for (const worker::Pause& pause : at.pauses) {
    data["pauses"].push_back({{"what", pause.what},
                              {"count", pause.count},
                              {"seconds", absl::ToDoubleSeconds(pause.span)}});
  }
  AddTally(at.contributions, data);
  data["predicted_utilization"] =
      at.forecast.has_value() ? Json(at.forecast->utilization) : Json(nullptr);
  data["measured"] = ToData(at.measured);
  data["recipes"] = Json::array();
  for (const worker::planner::Candidate& recipe : at.recipes) {
    data["recipes"].push_back({{"preset", std::string(recipe.preset->name)},
                               {"utilization", recipe.forecast.utilization},
                               {"up_bytes", recipe.forecast.up_bytes},
                               {"down_bytes", recipe.forecast.down_bytes}});
  }
  const LatencyHistogram& heartbeats = at.heartbeat_latency;
  Json& latency = data["heartbeat_latency_seconds"];
  latency["count"] = heartbeats.count();
  latency["p50"] = absl::ToDoubleSeconds(heartbeats.Quantile(0.5));
  latency["p99"] = absl::ToDoubleSeconds(heartbeats.Quantile(0.99));
  latency["max"] = absl::ToDoubleSeconds(heartbeats.max());
  return data;
}

std::string ToText(const worker::IslandProgress& at, const std::string& run_id,
                   const std::string& island_id) {
  Fields fields;
  fields.Add("run", run_id);
  fields.Add("island", island_id);
  fields.Add("version", DescribeRounds(at.version, at.round_count));
  fields.Add("tokens read", FormatCount(at.token_count));
  fields.AddText("contributions", DescribeTally(at.contributions));
  fields.Add("bytes up", FormatBytes(at.sent_bytes));
  fields.Add("bytes down", FormatBytes(at.received_bytes));
  fields.Add("bytes saved", FormatBytes(at.saved_bytes));
  fields.Add("computing",
             absl::StrFormat("%.1f %% of the time", 100 * at.utilization));
  return fields.ToString();
}

}  // namespace atl::cli
