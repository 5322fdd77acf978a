#include "coordinator/metrics/run_metrics.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/layout/run_timing.h"
#include "base/metrics/common_metrics.h"
#include "base/metrics/metrics.h"
#include "base/time/proto_time.h"
#include "coordinator/core/run_queries.h"
#include "prometheus/metric_type.h"

namespace atl::coordinator {
namespace {

ShardState ReadShardState(const ObservedShard& shard,
                          const ServerInfo* server) {
  // A shard that has not reported since the coordinator's start is not known.
  if (server == nullptr || !server->alive || !shard.reported) {
    return ShardState::kAway;
  }
  if (!shard.report.fault().empty()) return ShardState::kStopped;
  if (!shard.report.blocked_reason().empty()) return ShardState::kBlocked;
  return ShardState::kServing;
}

using prometheus::ClientMetric;
using prometheus::MetricFamily;

constexpr absl::string_view kShardStates[] = {"serving", "blocked", "stopped",
                                              "away"};

// "OUTCOME_MERGED" gives "merged".
std::string ToLabel(absl::string_view name, absl::string_view prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

double ToSeconds(absl::Time time) {
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

std::optional<double> ToSeconds(std::optional<absl::Time> time) {
  if (!time.has_value()) return std::nullopt;
  return ToSeconds(*time);
}

// A run's samples of a family.
struct RunSamples {
  const std::string& run_id;
  std::vector<Sample>& samples;

  void Add(const char* label, std::string name, double value) {
    samples.push_back({{{"run", run_id}, {label, std::move(name)}}, value});
  }
};

using OutcomeCounts = std::array<int64_t, v1::Outcome_ARRAYSIZE>;

template <typename Outcomes>
void CountOutcomes(const Outcomes& outcomes, OutcomeCounts& counts) {
  for (const v1::ContributionOutcome& outcome : outcomes) {
    if (v1::Outcome_IsValid(outcome.outcome())) ++counts[outcome.outcome()];
  }
}

}  // namespace

RunValues ReadRunValues(const RunMachine& machine,
                        const ServerDirectory& servers) {
  const RunState& state = machine.state();
  RunValues values;
  values.run_id = state.run_id();
  values.state = state.state();
  values.commit_count = state.commit_seq();
  values.outside_band = state.FindHeld() != nullptr;
  if (state.spec().checkpoint().mirror()) {
    const v1::RunMirror mirror = BuildMirror(machine, servers);
    values.mirror_time = mirror.has_last_success_time()
                             ? FromProto(mirror.last_success_time())
                             : state.create_time();
    if (mirror.has_wait_start_time()) {
      values.mirror_wait_start = FromProto(mirror.wait_start_time());
    }
  }
  values.merged_token_count = state.merged_token_count();
  for (const Member& member : state.members()) {
    const v1::IslandState one = member.record.state();
    if (v1::IslandState_IsValid(one)) ++values.island_counts[one];
    const auto add = [](int64_t count, int64_t sum) {
      return count > INT64_MAX - sum ? INT64_MAX : sum + count;
    };
    v1::IslandTotals& sums = values.totals;
    sums.set_merged_token_count(add(member.totals.merged_token_count(),
                                    sums.merged_token_count()));
    sums.set_unmerged_token_count(add(member.totals.unmerged_token_count(),
                                      sums.unmerged_token_count()));
    sums.set_unpushed_token_count(add(member.totals.unpushed_token_count(),
                                      sums.unpushed_token_count()));
  }
  values.min_quorum =
      IsAsync(state.spec().schedule())
          ? 1
          : std::max(state.spec().schedule().min_quorum(), 1);
  if (!state.ended()) {
    values.shard_counts.emplace();
    values.shard_counts->fill(0);
    for (size_t shard = 0; shard < machine.observed().shards.size(); ++shard) {
      const ShardState one =
          ReadShardState(machine.observed().shards[shard],
                         servers.FindServer(state.server_ids()[shard]));
      ++(*values.shard_counts)[static_cast<size_t>(one)];
    }
  }
  values.wait_start = FindWaitStart(machine);
  values.last_commit = state.commit_seq() > 0 ? state.last_commit_time()
                                              : state.create_time();
  values.refused_call_count = machine.observed().refused_call_count;
  const LiveTotals totals = ComputeTotals(machine);
  values.tokens_per_second = totals.tokens_per_second;
  if (totals.loss_count > 0) {
    values.train_loss = totals.loss_sum / totals.loss_count;
  }
  if (state.newest_evaluation() != nullptr) {
    values.validation_loss = state.newest_evaluation()->loss();
  }
  return values;
}

std::vector<RunValues> ReadShownRuns(const Coordinator& coordinator) {
  std::vector<const RunMachine*> runs;
  for (const auto& [id, run] : coordinator.runs()) runs.push_back(run.get());
  const auto is_before = [](const RunMachine* a, const RunMachine* b) {
    // The end of a run that has not ended is InfiniteFuture.
    return std::tuple(a->state().end_time(), a->state().create_time()) >
           std::tuple(b->state().end_time(), b->state().create_time());
  };
  std::stable_sort(runs.begin(), runs.end(), is_before);
  if (runs.size() > kShownRunsMax) runs.resize(kShownRunsMax);
  std::vector<RunValues> values;
  for (const RunMachine* run : runs) {
    values.push_back(ReadRunValues(*run, coordinator));
  }
  return values;
}

void RunMetrics::Counts::Observe(const std::string& phase,
                                 absl::Duration duration) {
  std::unique_ptr<prometheus::Histogram>& histogram = durations[phase];
  if (histogram == nullptr) {
    histogram =
        std::make_unique<prometheus::Histogram>(RoundDurationBuckets());
  }
  // The clock may have been set back between two lives of the coordinator.
  histogram->Observe(std::max(0.0, absl::ToDoubleSeconds(duration)));
}

void RunMetrics::SetSource(Source source) {
  MutexLock lock(&source_mutex_);
  source_ = std::move(source);
}

void RunMetrics::Count(const Effects& effects) {
  MutexLock lock(&mutex_);
  // First: the rest may be of a new run with the same id.
  for (const std::string& id : effects.batch.deleted_runs) {
    counts_.erase(id);
    std::erase_if(values_,
                  [&](const RunValues& one) { return one.run_id == id; });
  }
  for (const LogEntry& entry : effects.batch.entries) {
    const storage::v1::Record& record = entry.record;
    if (record.has_round_committed()) {
      const v1::Round& round = record.round_committed().round();
      Counts& counts = counts_[entry.run_id];
      CountOutcomes(record.round_committed().commit().outcomes(),
                    counts.outcomes);
      for (const v1::RoundContribution& one : round.contributions()) {
        counts.above_norm_bound += one.outcome() == v1::OUTCOME_MERGED &&
                                   one.norm_bound() > 0 &&
                                   one.norm() > one.norm_bound();
      }
      const absl::Time commit_time = FromProto(round.commit_time());
      counts.Observe("total", commit_time - FromProto(round.open_time()));
      counts.Observe("merge", commit_time - FromProto(round.seal_time()));
    } else if (record.has_round_aborted()) {
      CountOutcomes(record.round_aborted().outcomes(),
                    counts_[entry.run_id].outcomes);
    } else if (record.has_outcomes_set()) {
      CountOutcomes(record.outcomes_set().outcomes(),
                    counts_[entry.run_id].outcomes);
    } else if (record.has_evaluated()) {
      counts_[entry.run_id].failed_evaluations +=
          !record.evaluated().evaluation().failure().empty();
    }
  }
  for (const ReportedPhases& reported : effects.phases) {
    if (absl::c_linear_search(effects.batch.deleted_runs, reported.run_id)) {
      continue;
    }
    for (const v1::PhaseTime& phase : reported.sync.phases()) {
      counts_[reported.run_id].Observe(
          ToLabel(v1::Phase_Name(phase.phase()), "PHASE_"),
          FromProto(phase.duration()));
    }
  }
}

void RunMetrics::Refresh() const {
  bool asks = false;
  int64_t seen = 0;
  {
    MutexLock lock(&mutex_);
    asks = !std::exchange(asked_, true);
    seen = answer_count_;
  }
  if (asks) {
    MutexLock lock(&source_mutex_);
    const Take take = [this](absl::StatusOr<std::vector<RunValues>> values) {
      MutexLock lock(&mutex_);
      asked_ = false;
      ++answer_count_;
      if (values.ok()) values_ = *std::move(values);
      answered_.SignalAll();
    };
    if (source_ != nullptr) {
      source_(take);
    } else {
      take(absl::UnavailableError("the metrics have no source"));
    }
  }
  MutexLock lock(&mutex_);
  while (answer_count_ == seen) {
    if (answered_.WaitWithTimeout(&mutex_, answer_timeout_)) return;
  }
}

std::vector<MetricFamily> RunMetrics::Collect() const {
  Refresh();
  MutexLock lock(&mutex_);
  std::vector<MetricFamily> families;
  const auto add = [&](auto make, const char* name, const char* help,
                       auto add_samples) {
    std::vector<Sample> samples;
    for (const RunValues& run : values_) {
      add_samples(run, RunSamples{run.run_id, samples});
    }
    families.push_back(make(name, help, std::move(samples)));
  };
  // A family with one sample of a run, unless `get` gives none.
  const auto add_one = [&](auto make, const char* name, const char* help,
                           auto get) {
    add(make, name, help, [&](const RunValues& run, RunSamples to) {
      const std::optional<double> value = std::invoke(get, run);
      if (value.has_value()) {
        to.samples.push_back({{{"run", run.run_id}}, *value});
      }
    });
  };
  const Counts none = {};
  const auto counts_of = [&](const RunValues& run) -> const Counts& {
    const auto counts = counts_.find(run.run_id);
    return counts == counts_.end() ? none : counts->second;
  };
  add_one(MakeCounters, "atoll_commits_total", "Committed rounds.",
          &RunValues::commit_count);
  add_one(MakeCounters, "atoll_merged_tokens_total",
          "Tokens in merged contributions.", &RunValues::merged_token_count);
  add(MakeCounters, "atoll_island_tokens_total",
      "Tokens that the run's islands have read, by what became of them: in "
      "merged contributions, in others, or never pushed. Once for each "
      "fragment.",
      [](const RunValues& run, RunSamples to) {
        to.Add("end", "merged", run.totals.merged_token_count());
        to.Add("end", "unmerged", run.totals.unmerged_token_count());
        to.Add("end", "unpushed", run.totals.unpushed_token_count());
      });
  add(MakeGauges, "atoll_islands", "Islands of a run by state.",
      [](const RunValues& run, RunSamples to) {
        for (int i = 1; i < v1::IslandState_ARRAYSIZE; ++i) {
          to.Add("state", ToLabel(v1::IslandState_Name(i), "ISLAND_STATE_"),
                 run.island_counts[i]);
        }
      });
  add_one(MakeGauges, "atoll_min_quorum",
          "Contributions that a round needs at least.", &RunValues::min_quorum);
  add(MakeGauges, "atoll_shards", "Shards of an unended run by state.",
      [](const RunValues& run, RunSamples to) {
        if (!run.shard_counts.has_value()) return;
        for (size_t i = 0; i < run.shard_counts->size(); ++i) {
          to.Add("state", std::string(kShardStates[i]), (*run.shard_counts)[i]);
        }
      });
  add(MakeGauges, "atoll_run_state", "1 for the state that a run is in.",
      [](const RunValues& run, RunSamples to) {
        for (int i = 1; i < v1::RunState_ARRAYSIZE; ++i) {
          to.Add("state", ToLabel(v1::RunState_Name(i), "RUN_STATE_"),
                 i == run.state ? 1 : 0);
        }
      });
  add_one(MakeGauges, "atoll_round_wait_start_timestamp_seconds",
          "Since when the longest waiting round has waited; 0: no round waits.",
          [](const RunValues& run) {
            return run.wait_start == absl::InfiniteFuture()
                       ? 0
                       : ToSeconds(run.wait_start);
          });
  add_one(MakeGauges, "atoll_run_outside_band",
          "1 while a commit or an evaluation is outside the run's band.",
          &RunValues::outside_band);
  add_one(MakeGauges, "atoll_run_mirror_timestamp_seconds",
          "When the newest checkpoint became whole in the mirror; before the "
          "first one, when the run was created.",
          [](const RunValues& run) { return ToSeconds(run.mirror_time); });
  add_one(MakeGauges, "atoll_run_mirror_wait_start_timestamp_seconds",
          "Since when a checkpoint waits to be whole in the mirror; 0: none "
          "waits.",
          [](const RunValues& run) -> std::optional<double> {
            if (!run.mirror_time.has_value()) return std::nullopt;
            return ToSeconds(run.mirror_wait_start).value_or(0);
          });
  add_one(MakeGauges, "atoll_last_commit_timestamp_seconds",
          "When the newest round was committed; before the first one, when the "
          "run was created.",
          [](const RunValues& run) { return ToSeconds(run.last_commit); });
  add_one(MakeGauges, "atoll_run_train_loss",
          "Mean of the present islands' training losses, in nats per token.",
          &RunValues::train_loss);
  add_one(MakeGauges, "atoll_run_validation_loss",
          "Loss of the newest evaluation, in nats per token.",
          &RunValues::validation_loss);
  add_one(MakeCounters, "atoll_refused_island_calls_total",
          "Joins, leaves and reports that were refused because an island made "
          "too many.",
          &RunValues::refused_call_count);
  add_one(MakeGauges, "atoll_run_tokens_per_second",
          "Sum of the present islands' speeds.", &RunValues::tokens_per_second);
  add(MakeCounters, "atoll_contributions_total",
      "Contributions by how they ended, since the coordinator's start.",
      [&](const RunValues& run, RunSamples to) {
        for (int i = 1; i < v1::Outcome_ARRAYSIZE; ++i) {
          to.Add("outcome", ToLabel(v1::Outcome_Name(i), "OUTCOME_"),
                 counts_of(run).outcomes[i]);
        }
      });
  add_one(MakeCounters, "atoll_contributions_above_norm_bound_total",
          "Merged contributions of the operator's own islands with a norm "
          "above the bound of enrolled islands, since the coordinator's start.",
          [&](const auto& run) { return counts_of(run).above_norm_bound; });
  add_one(MakeCounters, "atoll_failed_evaluations_total",
          "Evaluations that failed, since the coordinator's start.",
          [&](const auto& run) { return counts_of(run).failed_evaluations; });
  MetricFamily durations = {"atoll_round_duration_seconds",
                            "Phases of rounds: an island's by its own report, "
                            "merge from SEAL to COMMIT, total from OPEN to "
                            "COMMIT.",
                            prometheus::MetricType::Histogram,
                            {}};
  for (const RunValues& run : values_) {
    for (const auto& [phase, histogram] : counts_of(run).durations) {
      ClientMetric metric = histogram->Collect();
      metric.label = {{"run", run.run_id}, {"phase", phase}};
      durations.metric.push_back(std::move(metric));
    }
  }
  families.push_back(std::move(durations));
  return families;
}

}  // namespace atl::coordinator
