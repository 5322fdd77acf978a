#include "coordinator/metrics/run_metrics.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/v1/island_service.pb.h"
#include "base/time/proto_time.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using Labels = std::map<std::string, std::string>;

std::optional<prometheus::ClientMetric> Find(
    const std::vector<prometheus::MetricFamily>& families,
    const std::string& name, const Labels& labels) {
  for (const prometheus::MetricFamily& family : families) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      Labels found;
      for (const auto& label : metric.label) found[label.name] = label.value;
      if (found == labels) return metric;
    }
  }
  return std::nullopt;
}

class RunMetricsTest : public testing::Test {
 protected:
  RunMetricsTest() { Answer({MakeRun("run")}); }

  static RunValues MakeRun(const std::string& run_id) {
    RunValues run;
    run.run_id = run_id;
    run.state = v1::RUN_STATE_ACTIVE;
    run.commit_count = 5;
    run.refused_call_count = 7;
    run.island_counts[v1::ISLAND_STATE_READY] = 3;
    run.shard_counts = {1, 0, 2, 0};
    run.last_commit = absl::FromUnixSeconds(1000);
    run.train_loss = 2.5;
    return run;
  }

  // From now on the source gives these values at once.
  void Answer(std::vector<RunValues> values) {
    metrics_.SetSource([values = std::move(values)](RunMetrics::Take take) {
      take(values);
    });
  }

  std::optional<double> Gauge(const std::string& name,
                              const Labels& labels = {{"run", "run"}}) {
    const auto metric = Find(metrics_.Collect(), name, labels);
    if (!metric.has_value()) return std::nullopt;
    return metric->gauge.value;
  }
  std::optional<double> Counter(const std::string& name,
                                const Labels& labels = {{"run", "run"}}) {
    const auto metric = Find(metrics_.Collect(), name, labels);
    if (!metric.has_value()) return std::nullopt;
    return metric->counter.value;
  }
  // Count and sum of a phase's durations.
  std::pair<uint64_t, double> Phase(const std::string& phase) {
    const auto metric =
        Find(metrics_.Collect(), "atoll_round_duration_seconds",
             {{"run", "run"}, {"phase", phase}});
    if (!metric.has_value()) return {0, 0};
    return {metric->histogram.sample_count, metric->histogram.sample_sum};
  }

  // A round of a minute, of which the merge took ten seconds.
  static Effects MakeCommit(const std::string& run_id) {
    Effects effects;
    LogEntry& entry = effects.batch.entries.emplace_back();
    entry.run_id = run_id;
    storage::v1::RoundCommitted& committed =
        *entry.record.mutable_round_committed();
    for (const v1::Outcome outcome :
         {v1::OUTCOME_MERGED, v1::OUTCOME_MERGED, v1::OUTCOME_LATE}) {
      committed.mutable_commit()->add_outcomes()->set_outcome(outcome);
    }
    const absl::Time open = absl::FromUnixSeconds(100);
    v1::Round& round = *committed.mutable_round();
    *round.mutable_open_time() = ToProto(open);
    *round.mutable_seal_time() = ToProto(open + absl::Seconds(50));
    *round.mutable_commit_time() = ToProto(open + absl::Seconds(60));
    return effects;
  }

  RunMetrics metrics_{absl::Milliseconds(1)};
};

TEST_F(RunMetricsTest, ShowTheValuesOfARun) {
  EXPECT_EQ(Counter("atoll_commits_total"), 5);
  EXPECT_EQ(Counter("atoll_refused_island_calls_total"), 7);
  EXPECT_EQ(Gauge("atoll_islands", {{"run", "run"}, {"state", "ready"}}), 3);
  EXPECT_EQ(Gauge("atoll_islands", {{"run", "run"}, {"state", "lost"}}), 0);
  EXPECT_EQ(Gauge("atoll_shards", {{"run", "run"}, {"state", "serving"}}), 1);
  EXPECT_EQ(Gauge("atoll_shards", {{"run", "run"}, {"state", "stopped"}}), 2);
  EXPECT_EQ(Gauge("atoll_run_state", {{"run", "run"}, {"state", "active"}}), 1);
  EXPECT_EQ(Gauge("atoll_run_state", {{"run", "run"}, {"state", "paused"}}), 0);
  EXPECT_EQ(Gauge("atoll_round_wait_start_timestamp_seconds"), 0);
  EXPECT_EQ(Gauge("atoll_last_commit_timestamp_seconds"), 1000);
  EXPECT_EQ(Gauge("atoll_run_train_loss"), 2.5);
  EXPECT_EQ(Gauge("atoll_run_validation_loss"), std::nullopt);
  EXPECT_EQ(Gauge("atoll_run_outside_band"), 0);
  EXPECT_EQ(Gauge("atoll_run_mirror_timestamp_seconds"), std::nullopt);
}

TEST_F(RunMetricsTest, CountOutcomesAndDurationsOfBatches) {
  const Labels merged = {{"run", "run"}, {"outcome", "merged"}};
  EXPECT_EQ(Counter("atoll_contributions_total", merged), 0);
  EXPECT_EQ(Phase("total"), std::pair(uint64_t{0}, 0.0));
  Effects effects = MakeCommit("run");
  ReportedPhases& reported = effects.phases.emplace_back();
  reported.run_id = "run";
  v1::PhaseTime& phase = *reported.sync.add_phases();
  phase.set_phase(v1::PHASE_TRAIN);
  *phase.mutable_duration() = ToProto(absl::Seconds(40));
  metrics_.Count(effects);
  EXPECT_EQ(Counter("atoll_contributions_total", merged), 2);
  EXPECT_EQ(Counter("atoll_contributions_total",
                    {{"run", "run"}, {"outcome", "late"}}),
            1);
  EXPECT_EQ(Phase("total"), std::pair(uint64_t{1}, 60.0));
  EXPECT_EQ(Phase("merge"), std::pair(uint64_t{1}, 10.0));
  EXPECT_EQ(Phase("train"), std::pair(uint64_t{1}, 40.0));
}

TEST_F(RunMetricsTest, MergedContributionsAboveTheNormBoundCount) {
  Effects effects = MakeCommit("run");
  v1::Round& round = *effects.batch.entries[0]
                          .record.mutable_round_committed()
                          ->mutable_round();
  for (const double bound : {0.0, 5.0, 7.0}) {
    v1::RoundContribution& added = *round.add_contributions();
    added.set_outcome(v1::OUTCOME_MERGED);
    added.set_norm(6);
    added.set_norm_bound(bound);
  }
  metrics_.Count(effects);
  EXPECT_EQ(Counter("atoll_contributions_above_norm_bound_total"), 1);
}

TEST_F(RunMetricsTest, FailedEvaluationsCount) {
  Effects effects = MakeCommit("run");
  for (const char* failure : {"", "the held-out loss is nan"}) {
    LogEntry& entry = effects.batch.entries.emplace_back();
    entry.run_id = "run";
    entry.record.mutable_evaluated()->mutable_evaluation()->set_failure(
        failure);
  }
  metrics_.Count(effects);
  EXPECT_EQ(Counter("atoll_failed_evaluations_total"), 1);
}

TEST_F(RunMetricsTest, OutcomesOfAbortsAndOfLateReportsCount) {
  Effects effects;
  LogEntry& aborted = effects.batch.entries.emplace_back();
  aborted.run_id = "run";
  aborted.record.mutable_round_aborted()->add_outcomes()->set_outcome(
      v1::OUTCOME_REJECTED);
  LogEntry& set = effects.batch.entries.emplace_back();
  set.run_id = "run";
  set.record.mutable_outcomes_set()->add_outcomes()->set_outcome(
      v1::OUTCOME_REJECTED);
  metrics_.Count(effects);
  EXPECT_EQ(Counter("atoll_contributions_total",
                    {{"run", "run"}, {"outcome", "rejected"}}),
            2);
}

TEST_F(RunMetricsTest, ADeletedRunVanishesAndItsIdStartsAnew) {
  metrics_.Count(MakeCommit("run"));
  EXPECT_EQ(Phase("total").first, 1);
  metrics_.SetSource(nullptr);
  Effects deletion = MakeCommit("other");
  deletion.batch.deleted_runs = {"run"};
  // An island's last report came in the same moment.
  v1::PhaseTime& late = *deletion.phases.emplace_back().sync.add_phases();
  deletion.phases.back().run_id = "run";
  late.set_phase(v1::PHASE_TRAIN);
  metrics_.Count(deletion);
  EXPECT_EQ(Counter("atoll_commits_total"), std::nullopt);
  EXPECT_EQ(Phase("total").first, 0);
  Answer({MakeRun("run")});
  EXPECT_EQ(Phase("train").first, 0);
  EXPECT_EQ(Counter("atoll_contributions_total",
                    {{"run", "run"}, {"outcome", "merged"}}),
            0);
}

TEST_F(RunMetricsTest, ARunThatIsNotShownHasNoSeries) {
  metrics_.Count(MakeCommit("other"));
  EXPECT_EQ(Counter("atoll_contributions_total",
                    {{"run", "other"}, {"outcome", "merged"}}),
            std::nullopt);
}

TEST_F(RunMetricsTest, AScrapeGivesTheLastValuesWhileAnAnswerIsOwed) {
  EXPECT_EQ(Counter("atoll_commits_total"), 5);
  std::vector<RunMetrics::Take> owed;
  metrics_.SetSource(
      [&](RunMetrics::Take take) { owed.push_back(std::move(take)); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Counter("atoll_commits_total"), 5);
  // A hanging loop gets no further questions.
  ASSERT_EQ(owed.size(), 1);
  RunValues next = MakeRun("run");
  next.commit_count = 6;
  owed[0](std::vector<RunValues>{next});
  EXPECT_EQ(Counter("atoll_commits_total"), 6);
  EXPECT_EQ(owed.size(), 2);
}

TEST_F(RunMetricsTest, ARefusedQuestionLeavesTheLastValues) {
  EXPECT_EQ(Counter("atoll_commits_total"), 5);
  metrics_.SetSource([](RunMetrics::Take take) {
    take(absl::UnavailableError("the disk fails"));
  });
  EXPECT_EQ(Counter("atoll_commits_total"), 5);
}

class NoServers : public ServerDirectory {
 public:
  const ServerInfo* FindServer(const std::string& server_id) const override {
    return nullptr;
  }
  std::vector<std::string> AliveServers() const override { return {}; }
};

class RunValuesTest : public testing::Test {
 protected:
  RunValues Read() { return ReadRunValues(run_.machine(), run_); }

  void JoinReady(const std::string& island_id) {
    ASSERT_TRUE(run_.Join(island_id).ok());
    ASSERT_TRUE(run_.Ready(island_id).ok());
  }

  void ReportLoss(const std::string& island_id, double loss) {
    v1::ReportProgressRequest request;
    request.set_loss(loss);
    request.set_loss_step_count(1);
    request.set_tokens_per_second(100);
    ASSERT_TRUE(run_.machine()
                    .Step(event::Progress{run_.Credentials(island_id), request},
                          run_.now())
                    .ok());
  }

  RunSimulation run_{ElasticSpec()};
};

TEST_F(RunValuesTest, CountIslandsByState) {
  run_.StartServers();
  JoinReady("a");
  JoinReady("b");
  ASSERT_TRUE(run_.Join("c").ok());
  ASSERT_TRUE(run_.Leave("b").ok());
  const RunValues values = Read();
  EXPECT_THAT(values.island_counts,
              ElementsAre(0, /*joining=*/1, /*ready=*/1, /*lost=*/0, /*left=*/1,
                          /*removed=*/0, /*readmitted=*/0));
  EXPECT_EQ(values.min_quorum, 1);
  EXPECT_EQ(values.state, v1::RUN_STATE_ACTIVE);
}

TEST_F(RunValuesTest, CountShardsByStateUntilTheRunEnds) {
  EXPECT_THAT(*Read().shard_counts, ElementsAre(0, 0, 0, 0));  // Not placed.
  run_.StartServers();
  EXPECT_THAT(*Read().shard_counts, ElementsAre(2, 0, 0, 0));
  run_.SetBlockedReason(0, "its disk is full");
  EXPECT_THAT(*Read().shard_counts, ElementsAre(1, 1, 0, 0));
  run_.SetFault(1, "its data is damaged");
  EXPECT_THAT(*Read().shard_counts, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(*ReadRunValues(run_.machine(), NoServers()).shard_counts,
              ElementsAre(0, 0, 0, 2));
  ASSERT_TRUE(run_.machine().Step(event::Cancel{}, run_.now()).ok());
  EXPECT_FALSE(Read().shard_counts.has_value());
}

TEST_F(RunValuesTest, TellSinceWhenARoundWaits) {
  EXPECT_EQ(Read().wait_start, absl::InfiniteFuture());
  run_.StartServers();
  JoinReady("a");
  JoinReady("b");
  EXPECT_EQ(Read().wait_start, run_.now());
  EXPECT_EQ(Read().last_commit, run_.state().create_time());
  run_.Pass(absl::Milliseconds(100));
  run_.Settle();
  EXPECT_GT(Read().commit_count, 0);
  EXPECT_GT(Read().merged_token_count, 0);
  EXPECT_EQ(Read().last_commit, run_.state().last_commit_time());
}

TEST_F(RunValuesTest, LossesAreThoseOfPresentIslandsAndOfTheNewestEvaluation) {
  run_.StartServers();
  JoinReady("a");
  JoinReady("b");
  EXPECT_FALSE(Read().train_loss.has_value());
  EXPECT_FALSE(Read().validation_loss.has_value());
  ReportLoss("a", 2);
  ReportLoss("b", 4);
  EXPECT_EQ(Read().train_loss, 3);
  EXPECT_EQ(Read().tokens_per_second, 200);
  ASSERT_TRUE(run_.Leave("b").ok());
  EXPECT_EQ(Read().train_loss, 2);
  run_.Settle();
  ASSERT_TRUE(run_.Evaluate("a", 2, 7).ok());
  EXPECT_EQ(Read().validation_loss, 7);
}

TEST(ReadShownRunsTest, ShowsRunsThatHaveNotEndedAndThenTheNewestEndedOnes) {
  Coordinator coordinator{CoordinatorOptions()};
  absl::Time now = absl::FromUnixSeconds(1000);
  coordinator.Start(now, {"cluster", "start"}, 0);
  const int count = static_cast<int>(kShownRunsMax);
  const auto create = [&](const std::string& run_id) {
    now += absl::Seconds(1);
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = SimpleSpec();
    ASSERT_TRUE(coordinator.CreateRun(request, now).ok());
  };
  const auto cancel = [&](const std::string& run_id) {
    now += absl::Seconds(1);
    ASSERT_TRUE(
        (*coordinator.FindRun(run_id))->Step(event::Cancel{}, now).ok());
  };
  const auto shown = [&] {
    std::vector<std::string> ids;
    for (const RunValues& run : ReadShownRuns(coordinator)) {
      ids.push_back(run.run_id);
    }
    return ids;
  };
  for (const char* id : {"a", "b", "c"}) create(id);
  cancel("b");
  cancel("a");
  EXPECT_THAT(shown(), ElementsAre("c", "a", "b"));
  for (int i = 0; i < count - 2; ++i) create(absl::StrCat("run-", i));
  const std::vector<std::string> ids = shown();
  EXPECT_EQ(ids.size(), count);
  EXPECT_EQ(ids[count - 2], "c");
  EXPECT_EQ(ids[count - 1], "a");
}

}  // namespace
}  // namespace atl::coordinator
