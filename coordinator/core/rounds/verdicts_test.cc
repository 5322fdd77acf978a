#include "coordinator/core/rounds/verdicts.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "base/layout/layout.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/testing/run_simulation.h"
#include "coordinator/core/verdict/verdict_rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A spec with `quorum` islands and two shards.
v1::RunSpec MakeSpec(v1::MergeRuleKind rule, int quorum = 3) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_outer()->mutable_merge()->set_rule(rule);
  spec.mutable_schedule()->set_island_count_min(quorum);
  spec.mutable_schedule()->set_min_quorum(quorum);
  spec.mutable_data()->set_data_shard_count(quorum);
  return spec;
}

class VerdictsTest : public testing::Test {
 protected:
  // Starts as many islands "i0", "i1", ... as the quorum; all push.
  void StartAndSeal(const v1::RunSpec& spec) {
    run_ = std::make_unique<RunSimulation>(spec);
    run_->StartServers();
    for (int i = 0; i < spec.schedule().min_quorum(); ++i) {
      ASSERT_TRUE(run_->Join("i" + std::to_string(i)).ok());
      ASSERT_TRUE(run_->Ready("i" + std::to_string(i)).ok());
    }
    PushAll();
  }
  void PushAll() {
    for (int i = 0; i < run_->state().spec().schedule().min_quorum(); ++i) {
      run_->PushAll("i" + std::to_string(i));
    }
    ASSERT_EQ(run_->fragment(0).phase, RoundPhase::kSealed);
  }
  const v1::Seal& Seal() const { return run_->fragment(0).sealed.seal(); }
  std::vector<float> Row() const {
    const auto& row = Seal().verdict().rows(0).coefficients();
    return std::vector<float>(row.begin(), row.end());
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }

  std::unique_ptr<RunSimulation> run_;
};

// A report holds no more statistics.
TEST_F(VerdictsTest, AReopenedRoundAsksNoMoreThanItsStatisticsHaveRoomFor) {
  constexpr int kIslands = 90;
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_NORM_CLIP, 60);
  spec.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  spec.mutable_schedule()->set_island_count_min(kIslands);
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(5);
  spec.mutable_data()->set_data_shard_count(kIslands);
  run_ = std::make_unique<RunSimulation>(spec);
  run_->StartServers();
  for (int i = 0; i < kIslands; ++i) {
    ASSERT_TRUE(run_->Join("i" + std::to_string(i)).ok());
    ASSERT_TRUE(run_->Ready("i" + std::to_string(i)).ok());
  }
  std::vector<int32_t> received;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::vector<int32_t> expected = run_->Expected();
    ASSERT_EQ(expected.size(), 64u) << attempt;
    EXPECT_THAT(expected, ::testing::IsSupersetOf(received));
    for (size_t i = 0; received.size() < 20u * (attempt + 1); ++i) {
      if (!absl::c_linear_search(received, expected[i])) {
        run_->PushAll("i" + std::to_string(expected[i]));
        received.push_back(expected[i]);
      }
    }
    run_->Pass(absl::Seconds(6));
  }
}

TEST_F(VerdictsTest, StatisticsOfAnotherAttemptOrVersionGiveNoVerdict) {
  const std::function<void(v1::RoundStatistics&)> changes[] = {
      [](v1::RoundStatistics& of) { of.set_attempt(of.attempt() + 1); },
      [](v1::RoundStatistics& of) { of.set_version(of.version() + 1); },
      [](v1::RoundStatistics& of) { of.set_fragment(of.fragment() + 1); },
  };
  for (const auto& change : changes) {
    StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_KRUM));
    run_->alter_report = [&](v1::ShardReport& report) {
      for (auto& of : *report.mutable_statistics()) change(of);
    };
    run_->FollowPlans();
    EXPECT_FALSE(Seal().has_verdict());
    run_->alter_report = nullptr;
    run_->FollowPlans();
    EXPECT_TRUE(Seal().has_verdict());
  }
}

TEST_F(VerdictsTest, AVerdictFollowsOnceEveryShardHasItsStatistics) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_KRUM));
  EXPECT_FALSE(Seal().has_verdict());
  EXPECT_THAT(run_->machine().waits_for(),
              HasSubstr("the statistics of shards 0, 1"));
  run_->FollowPlan(0);
  EXPECT_FALSE(Seal().has_verdict());
  run_->FollowPlan(1);
  ASSERT_TRUE(Seal().has_verdict());
  // Distances are sums of norms here, so slot 0 is nearest to all.
  EXPECT_THAT(Row(), ElementsAre(1, 0, 0));
  // Sums over both shards: 2, 4 and 6.
  EXPECT_DOUBLE_EQ(Seal().verdict().median_norm(), 2.0);
  EXPECT_EQ(run_->fragment(0).newest.version(), 0);
  run_->FollowPlans();
  EXPECT_EQ(run_->fragment(0).newest.version(), 1);
}

TEST_F(VerdictsTest, ARestartOnEitherSideOfTheVerdictChangesNothing) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_KRUM));
  run_->FollowPlan(0);
  run_->Restart();
  run_->FollowPlans();
  ASSERT_TRUE(Seal().has_verdict());
  EXPECT_THAT(Row(), ElementsAre(1, 0, 0));
  // The verdict is in the log; statistics are not asked for again.
  run_->Restart(run_->state().revision());
  ASSERT_TRUE(Seal().has_verdict());
  EXPECT_THAT(Row(), ElementsAre(1, 0, 0));
  run_->RestartServer(0);
  run_->FollowPlans();
  EXPECT_EQ(run_->fragment(0).newest.version(), 1);
}

TEST_F(VerdictsTest, TheRunningMedianIsOfCommitsAndOutlivesARestart) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_NORM_CLIP));
  run_->FollowPlans();
  // Norms sqrt(2), 2, sqrt(6): the last one is clipped to the median.
  EXPECT_THAT(
      Row(), ElementsAre(testing::FloatEq(1 / 3.0f), testing::FloatEq(1 / 3.0f),
                         testing::FloatNear(0.2721655f, 1e-6f)));
  EXPECT_THAT(run_->fragment(0).median_norms, IsEmpty());
  run_->FollowPlans();
  EXPECT_THAT(run_->fragment(0).median_norms, ElementsAre(2.0));
  run_->Restart(run_->state().revision());
  EXPECT_THAT(run_->fragment(0).median_norms, ElementsAre(2.0));
  run_->FollowPlans();
  PushAll();
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_THAT(run_->fragment(0).median_norms, ElementsAre(2.0, 2.0));
  // The history shows the coefficients of each merge.
  int round_count = 0;
  for (const storage::v1::Record& record : run_->log()) {
    if (!record.has_round_committed()) continue;
    const v1::Round& round = record.round_committed().round();
    EXPECT_DOUBLE_EQ(round.verdict().median_norm(), 2.0);
    EXPECT_GT(round.verdict().rows_size(), 0);
    ++round_count;
  }
  EXPECT_EQ(round_count, 2);
}

TEST_F(VerdictsTest, AnOverflowAbortsAndPauses) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_CENTRED_CLIP));
  run_->overflow = true;
  run_->FollowPlans();
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("overflow"));
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_DROPPED);
}

TEST_F(VerdictsTest, WhatIsLostBeforeTheVerdictIsPushedAgainFirst) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_KRUM));
  run_->FollowPlan(0);
  ASSERT_TRUE(run_->Lose("i2", 0, 1));
  run_->FollowPlans();
  EXPECT_FALSE(Seal().has_verdict());
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("shard 1 has lost"));
  ASSERT_TRUE(run_->PushAgain("i2"));
  run_->FollowPlans();
  ASSERT_TRUE(Seal().has_verdict());
  EXPECT_THAT(Row(), ElementsAre(1, 0, 0));
  // A loss after the verdict, before this shard has merged.
  ASSERT_TRUE(run_->Lose("i0", 0, 0));
  run_->FollowPlans();
  EXPECT_EQ(run_->fragment(0).newest.version(), 0);
  ASSERT_TRUE(run_->PushAgain("i0"));
  run_->FollowPlans();
  EXPECT_EQ(run_->fragment(0).newest.version(), 1);
}

TEST_F(VerdictsTest, StatisticsOfAShardThatHasStoppedDoNotCount) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_KRUM));
  run_->FollowPlan(0);
  run_->SetFault(0, "DATA_LOSS: test");
  run_->FollowPlan(1);
  EXPECT_FALSE(Seal().has_verdict());
  run_->SetFault(0, "");
  ASSERT_TRUE(Seal().has_verdict());
  EXPECT_THAT(Row(), ElementsAre(1, 0, 0));
}

TEST_F(VerdictsTest, TheMeanAsksForNoStatistics) {
  StartAndSeal(MakeSpec(v1::MERGE_RULE_KIND_MEDIAN));
  EXPECT_FALSE(WaitsForVerdict(run_->state(), 0));
  run_->FollowPlans();
  EXPECT_EQ(run_->fragment(0).newest.version(), 1);
  EXPECT_THAT(run_->fragment(0).median_norms, IsEmpty());
}

std::string Refused(const v1::RunSpec& spec) {
  std::string all;
  for (const FieldViolation& violation : ValidateSpec(spec)) {
    all += violation.field + ": " + violation.description + "\n";
  }
  return all;
}

TEST(RobustSpecTest, KrumNeedsTwoFAndThreeContributions) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_KRUM, 4);
  EXPECT_EQ(Refused(spec), "");
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(1);
  EXPECT_THAT(Refused(spec), HasSubstr("needs 5 contributions a round, and "
                                       "schedule.min_quorum is 4"));
  spec = MakeSpec(v1::MERGE_RULE_KIND_KRUM, 5);
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(1);
  EXPECT_EQ(Refused(spec), "");
  spec.mutable_outer()->mutable_merge()->set_selected_count(3);
  EXPECT_THAT(Refused(spec), HasSubstr("selected_count"));
}

TEST(RobustSpecTest, MdaNeedsAMajorityAndAFewHostile) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_MDA, 4);
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(1);
  EXPECT_EQ(Refused(spec), "");
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(2);
  EXPECT_THAT(Refused(spec), HasSubstr("needs 5 contributions a round, and "
                                       "schedule.min_quorum is 4"));
  spec = MakeSpec(v1::MERGE_RULE_KIND_MDA, 40);
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(9);
  EXPECT_THAT(Refused(spec), HasSubstr("byzantine_count"));
}

TEST(RobustSpecTest, ATrimmedMeanNeedsSomethingToBeLeft) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_TRIMMED_MEAN, 4);
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(2);
  EXPECT_THAT(Refused(spec), HasSubstr("a round needs 5 contributions"));
  spec.mutable_outer()->mutable_merge()->set_byzantine_count(1);
  EXPECT_EQ(Refused(spec), "");
}

TEST(RobustSpecTest, AConstantThatTheRuleDoesNotReadIsRefused) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_MEDIAN);
  spec.mutable_outer()->mutable_merge()->set_clip_factor(2);
  EXPECT_THAT(Refused(spec), HasSubstr("outer.merge.clip_factor"));
  spec = MakeSpec(v1::MERGE_RULE_KIND_KRUM);
  spec.mutable_outer()->mutable_merge()->add_mean_tensor_classes(
      v1::TENSOR_CLASS_EMBEDDING);
  EXPECT_THAT(Refused(spec), HasSubstr("control them"));
  spec = MakeSpec(v1::MERGE_RULE_KIND_NORM_CLIP);
  spec.mutable_outer()->mutable_merge()->set_clip_factor(std::nan(""));
  EXPECT_THAT(Refused(spec), HasSubstr("outer.merge.clip_factor"));
}

TEST(RobustSpecTest, DelayedNesterovIsForAsync) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_UNSPECIFIED);
  spec.mutable_outer()->set_optimizer(
      v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
  spec.mutable_outer()->set_learning_rate(0.7);
  EXPECT_THAT(Refused(spec), HasSubstr("async"));
}

TEST(RobustSpecTest, StatisticsOfManyTensorsBoundTheContributions) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_RDA);
  const auto most = [&spec] {
    return ContributionsMax(*RunLayout::Create(spec.layout()), spec);
  };
  EXPECT_EQ(most(), 64);
  for (int i = 0; i < 999; ++i) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor = spec.layout().tensors(0);
    tensor.set_name("u" + std::to_string(i));
  }
  EXPECT_EQ(most(), 15);  // 1000 matrices of 120 entries of 16 bytes.
  spec.mutable_outer()->mutable_merge()->set_rule(
      v1::MERGE_RULE_KIND_WEIGHTED_MEAN);
  EXPECT_EQ(most(), INT64_MAX);
}

}  // namespace
}  // namespace atl::coordinator
