#include "cli/commands/island_reporter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/obs/latency_histogram.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "cli/volunteer/local_status.h"

namespace atl::cli {
namespace {

// The estimate from the first transfers: "estimate from 3.4 MB in 0.34 s
// (80 Mb/s) up and ... down, ...: 93.1 % of the time computing, ...".
std::string ForecastLine(const worker::IslandProgress& at) {
  const auto moved = [](const worker::Measured& m) {
    return absl::StrCat(
        FormatBytes(m.bytes), " in ", absl::StrFormat("%.3g s", m.seconds),
        " (", FormatBandwidth(static_cast<double>(m.bytes) / m.seconds), ")");
  };
  const auto daily = [](double bytes_per_hour) {
    return FormatBytes(
        static_cast<int64_t>(std::min(24 * bytes_per_hour, 9e18)));
  };
  const worker::planner::Forecast& forecast = *at.forecast;
  return absl::StrCat(
      "estimate from ", moved(at.measured.pushed), " up and ",
      moved(at.measured.pulled), " down, if the other islands are as fast: ",
      absl::StrFormat("%.1f %%", 100 * forecast.utilization),
      " of the time computing, ", daily(forecast.up_bytes_per_hour), " up and ",
      daily(forecast.down_bytes_per_hour), " down a day; ", forecast.why);
}

// The predicted utilization of each preset on this link, and the one to take.
std::string RecipesLine(const worker::IslandProgress& at) {
  std::string line = "computing, by preset";
  if (at.measured.round_trip_seconds > 0) {
    absl::StrAppend(&line,
                    absl::StrFormat(", at a round trip of %.3g ms",
                                    1000 * at.measured.round_trip_seconds));
  }
  absl::StrAppend(&line, ": ");
  bool first = true;
  for (const worker::planner::Candidate& recipe : at.recipes) {
    absl::StrAppend(
        &line, first ? "" : ", ", recipe.preset->name, " ",
        absl::StrFormat("%.1f %%", 100 * recipe.forecast.utilization));
    first = false;
  }
  const worker::planner::Choice take = worker::planner::Choose(
      at.recipes, worker::planner::kTargetUtilization,
      /*data_is_local=*/false);
  if (take.candidate != nullptr) {
    absl::StrAppend(&line, "; take ", take.candidate->preset->name, ": ",
                    take.why);
  }
  return line;
}

// Units: bytes per second, and seconds. null: not measured.
Json MeasuredToData(const worker::IslandMeasurements& measured) {
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

void IslandReporter::Report(const worker::IslandProgress& at, absl::Time now) {
  MutexLock lock(&mutex_);
  if (at.evaluation.has_value() &&
      at.evaluation->version() != evaluated_version_) {
    evaluated_version_ = at.evaluation->version();
    progress_.Note(absl::StrCat("version ", evaluated_version_,
                                ": validation loss ",
                                FormatLoss(at.evaluation->loss()),
                                " nats a token"));
  }
  if (at.forecast.has_value() && !forecast_told_) {
    forecast_told_ = true;
    progress_.Note(ForecastLine(at));
    if (!at.recipes.empty()) progress_.Note(RecipesLine(at));
  }
  // The speed is 0 until this process has trained a step. Until then `step`
  // may jump to the run's position.
  if (first_step_ < 0 && at.tokens_per_second > 0) {
    first_step_ = at.step;
    first_time_ = now;
  }
  if (now < next_time_) return;
  next_time_ = now + interval_;
  progress_.Update(Line(at, now), now);
}

void IslandReporter::Note(absl::string_view line) {
  MutexLock lock(&mutex_);
  progress_.Note(line);
}

void IslandReporter::Send(LogSeverity severity, absl::string_view line,
                          absl::string_view text) {
  if (absl::StartsWith(text, "gRPC: ")) return;
  if (severity != LogSeverity::kInfo) {
    MutexLock lock(&mutex_);
    last_warning_ = std::string(text);
  }
  if (!live_) return Note(line);
  Note(absl::StrCat(severity == LogSeverity::kInfo ? "" : "warning: ", text));
}

std::string IslandReporter::last_warning() const {
  MutexLock lock(&mutex_);
  return last_warning_;
}

void IslandReporter::Clear() {
  MutexLock lock(&mutex_);
  progress_.Clear();
}

// "round 12/30  step 245/600  8,431 tokens/s  loss 1.81  ...".
std::string IslandReporter::Line(const worker::IslandProgress& at,
                                 absl::Time now) const {
  std::string line = absl::StrCat(
      "round ", at.version,
      at.round_count == 0 ? "" : absl::StrCat("/", at.round_count), "  step ",
      at.step, "/", at.step_count, "  ",
      FormatCount(static_cast<int64_t>(at.tokens_per_second)),
      " tokens/s  loss ", at.loss.has_value() ? FormatLoss(*at.loss) : "-",
      "  left ",
      Left(at, now), "  ", at.activity);
  // The reason of "train" says nothing new.
  if (at.activity != "train" && !at.reason.empty()) {
    absl::StrAppend(&line, ": ", at.reason);
  }
  // Bytes come last: a terminal of 80 columns cuts the end.
  absl::StrAppend(&line, "  up ", FormatBytes(at.sent_bytes), "  down ",
                  FormatBytes(at.received_bytes));
  return line;
}

std::string IslandReporter::Left(const worker::IslandProgress& at,
                                 absl::Time now) const {
  if (first_step_ < 0 || at.step <= first_step_) return "-";
  return FormatSpan((now - first_time_) / (at.step - first_step_) *
                    std::max<int64_t>(at.step_count - at.step, 0));
}

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
  data["loss"] = at.loss.has_value() ? Json(*at.loss) : Json(nullptr);
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
  data["measured"] = MeasuredToData(at.measured);
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
