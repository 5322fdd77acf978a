#include "tests/benchmarks/control/case_measures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/time/clock.h"
#include "base/status/status_macros.h"

namespace atl::benchmarks {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(5);
// A flood may take so many times the idle memory, and so much more.
constexpr double kFloodPart = 1.5;
constexpr double kFloodMib = 64;

// Mean seconds of the rounds of all runs but the first; NaN: there are none.
double MeanOfOthers(const Measures& measures) {
  double sum = 0;
  int count = 0;
  for (size_t run = 1; run < measures.round_s.size(); ++run) {
    for (const double seconds : measures.round_s[run]) {
      sum += seconds;
      ++count;
    }
  }
  return count > 0 ? sum / count : std::nan("");
}

}  // namespace

LoadOptions MakeOptions(const CaseOptions& options, const CaseSize& size) {
  LoadOptions load;
  load.directory = options.directory;
  load.coordinator_binary = options.coordinator_binary;
  load.island_count =
      options.island_count > 0 ? options.island_count : size.islands;
  load.run_count = size.runs;
  load.fragment_count = size.fragments;
  load.server_count = size.servers;
  load.tls = options.tls;
  load.filled_round_count = size.filled_rounds;
  load.elastic = size.elastic;
  return load;
}

Row BeginRow(const std::string& name, const LoadOptions& load) {
  Row row;
  row.Add("case", name)
      .Add("islands", load.island_count)
      .Add("fragments", load.fragment_count)
      .Add("servers", load.server_count)
      .Add("tls", load.tls);
  return row;
}

void AddMeasures(const Measures& measures, const std::string& prefix,
                 Row& row) {
  row.Add(prefix + "heartbeat_ms_p50", Quantile(measures.heartbeat_ms, 0.5))
      .Add(prefix + "heartbeat_ms_p99", Quantile(measures.heartbeat_ms, 0.99))
      .Add(prefix + "probe_ms_p50", Quantile(measures.probe_ms, 0.5))
      .Add(prefix + "probe_ms_p99", Quantile(measures.probe_ms, 0.99))
      .Add(prefix + "coordinator_cores",
           measures.coordinator_cpu_s / measures.wall_s)
      .Add(prefix + "island_plans", measures.island_plans)
      .Add(prefix + "errors", measures.errors)
      .Add(prefix + "rss_mib", measures.rss_mib);
}

int CountRounds(absl::Duration span, absl::Duration pace) {
  return std::max(1, static_cast<int>(span / pace));
}

absl::Status MeasureFlood(const CaseOptions& options, ControlLoad& load,
                          Row& row, const std::function<void()>& begin_flood,
                          const std::function<bool()>& has_effect,
                          const std::function<void()>& end_flood) {
  const int round_count = CountRounds(options.flood, options.pace);
  RETURN_IF_ERROR(load.PlayRounds(1, options.pace));
  load.BeginMeasuring();
  RETURN_IF_ERROR(load.PlayRounds(round_count, options.pace));
  const Measures idle = load.Measure();
  AddMeasures(idle, "idle_", row);
  load.BeginMeasuring();
  begin_flood();
  const absl::Time end = absl::Now() + options.flood;
  load.BeginRounds(round_count, options.pace);
  load.loop().Run([&] { return absl::Now() >= end && has_effect(); },
                  end + kPatience);
  const Measures flood = load.Measure();
  end_flood();
  AddMeasures(flood, "", row);
  row.Add("heartbeats", static_cast<int64_t>(flood.heartbeat_ms.size()))
      .Add("heartbeat_ratio_p99",
           flood.heartbeat_ms.empty() ? std::nan("")
                                      : Quantile(flood.heartbeat_ms, 0.99) /
                                            Quantile(flood.probe_ms, 0.99))
      .Add("rss_mib_allowed", kFloodPart * idle.rss_mib + kFloodMib);
  if (idle.round_s.size() > 1) {
    row.Add("idle_other_runs_round_s", MeanOfOthers(idle))
        .Add("other_runs_round_s", MeanOfOthers(flood))
        .Add("other_runs_ratio", MeanOfOthers(flood) / MeanOfOthers(idle));
  }
  return load.FinishRounds();
}

}  // namespace atl::benchmarks
