// Which contributions a quorum counts, and from when.

#include "coordinator/core/rounds/quorum.h"

#include <string>
#include <vector>

#include "base/layout/run_length.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;

v1::RunSpec MakeSpec(int quorum) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_inner_step_count(8);
  spec.mutable_schedule()->set_round_count(100);
  spec.mutable_schedule()->set_min_quorum(quorum);
  spec.mutable_schedule()->set_island_count_min(2);
  spec.mutable_data()->set_data_shard_count(8);
  return spec;
}

class QuorumTest : public RunSimulationTest {
 protected:
  // The islands of `tokens`; "" has none.
  void StartWith(const std::vector<std::string>& tokens, int quorum) {
    v1::RunSpec spec = MakeSpec(quorum);
    spec.mutable_schedule()->set_island_count_min(
        static_cast<int32_t>(tokens.size()));
    Start(spec, 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_TRUE(run_->Join(Name(i), tokens[i]).ok());
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_TRUE(run_->Ready(Name(i)).ok());
    }
  }
  void Claim(const std::string& id, double steps_per_second) {
    v1::ReportProgressRequest report;
    report.set_tokens_per_second(
        steps_per_second *
        static_cast<double>(TokensAStep(run_->state().spec())));
    ASSERT_TRUE(run_->machine()
                    .Step(event::Progress{run_->Credentials(id), report},
                          run_->now())
                    .status()
                    .ok());
  }
  static std::string Name(size_t i) { return "i" + std::to_string(i); }
  const v1::Seal& Seal() const { return run_->fragment(0).sealed.seal(); }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(QuorumTest, IslandsOfALimitedTokenCountOnceTogether) {
  StartWith({"", "t", "t"}, /*quorum=*/2);
  run_->PushAll("i1");
  run_->PushAll("i2");
  run_->Pass(absl::Seconds(5));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->PushAll("i0");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_FLOAT_EQ(Seal().contributions(0).weight(), 0.95);
  EXPECT_FLOAT_EQ(Seal().contributions(1).weight(), 0.025);
}

TEST_F(QuorumTest, ARoundDoesNotOpenForTooFewTokens) {
  StartWith({"t", "t"}, /*quorum=*/2);
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("count 1 of 2"));
  JoinReady("i2");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
}

TEST_F(QuorumTest, EveryIslandWithoutALimitCounts) {
  run_ = std::make_unique<RunSimulation>(MakeSpec(2));
  run_->share_of_token = 0;
  run_->StartServers();
  for (const char* id : {"i0", "i1"}) {
    ASSERT_TRUE(run_->Join(id, "t").ok());
    ASSERT_TRUE(run_->Ready(id).ok());
  }
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
}

TEST_F(QuorumTest, LimitedIslandsAloneWeighTheirShareAndNoMore) {
  StartWith({"t", "t", ""}, /*quorum=*/1);
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->Pass(absl::Seconds(1.5));
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  ASSERT_EQ(Seal().contributions_size(), 2);
  EXPECT_FLOAT_EQ(Seal().contributions(0).weight(), 0.025);
  EXPECT_FLOAT_EQ(Seal().contributions(1).weight(), 0.025);
}

TEST_F(QuorumTest, ASampleHasEnoughTokens) {
  v1::RunSpec spec = MakeSpec(2);
  spec.mutable_schedule()->set_sample_fraction(0.25);
  spec.mutable_schedule()->set_island_count_min(7);
  Start(spec, 0);
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(run_->Join(Name(i), i < 6 ? "t" : "").ok());
  }
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(run_->Ready(Name(i)).ok());
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(Phase(), RoundPhase::kOpen);
    EXPECT_THAT(run_->Expected(), testing::Contains(6));
    for (const int32_t slot : run_->Expected()) run_->PushAll(Name(slot));
    run_->FollowPlans();
    run_->FollowPlans();
  }
}

TEST_F(QuorumTest, APushSoonerThanItsStepsCanTakeOpensNoGraceWindow) {
  StartWith({"", "", ""}, /*quorum=*/1);
  run_->Pass(absl::Seconds(7.5));
  for (int i = 0; i < 2; ++i) run_->PushAll(Name(i));
  run_->Pass(absl::Seconds(0.5));
  run_->PushAll("i2");
  run_->FollowPlans();
  run_->FollowPlans();
  ASSERT_EQ(Phase(), RoundPhase::kOpen) << run_->machine().waits_for();
  // Eight steps at 1.07 a second: not before 7.5 s, then 1 s grace.
  const absl::Time open = run_->now();
  run_->PushAll("i2");
  EXPECT_EQ(run_->machine().NextTimer(), open + absl::Seconds(8.5));
  run_->Pass(absl::Seconds(8.25));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Pass(absl::Seconds(0.25));
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(Seal().contributions_size(), 1);
}

TEST_F(QuorumTest, ATrainedContributionOpensItAtOnce) {
  StartWith({"", "", ""}, /*quorum=*/1);
  run_->Pass(absl::Seconds(8));
  for (int i = 0; i < 3; ++i) run_->PushAll(Name(i));
  run_->FollowPlans();
  run_->FollowPlans();
  run_->PushAll("i2");  // Untrained.
  run_->Pass(absl::Seconds(8.5));
  run_->PushAll("i1");
  run_->Pass(absl::Seconds(0.25));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Pass(absl::Seconds(0.25));
  EXPECT_EQ(Phase(), RoundPhase::kSealed) << "8 s for both, then 1 s grace";
  EXPECT_EQ(Seal().contributions_size(), 2);
}

TEST_F(QuorumTest, BeforeTheOthersAreMeasuredTheirClaimsCount) {
  StartWith({"", "", ""}, /*quorum=*/1);
  for (const char* id : {"i1", "i2"}) Claim(id, 1);
  const absl::Time open = run_->now();
  run_->Pass(absl::Seconds(0.1));
  run_->PushAll("i0");  // Untrained, and the only one that is measured.
  EXPECT_EQ(run_->machine().NextTimer(), open + absl::Seconds(8 + 1));
}

TEST_F(QuorumTest, APlanOfOneStepIsDueWithTheRound) {
  StartWith({"", "", ""}, /*quorum=*/1);
  for (const char* id : {"i1", "i2"}) Claim(id, 1);
  Claim("i0", 0.001);
  run_->Pass(absl::Seconds(8));
  for (int i = 0; i < 3; ++i) run_->PushAll(Name(i));
  run_->FollowPlans();
  run_->FollowPlans();
  ASSERT_EQ(run_->fragment(0).open.slots(0).step_count(), 1);
  const absl::Time open = run_->now();
  run_->Pass(absl::Seconds(0.1));
  run_->PushAll("i0");
  EXPECT_EQ(run_->machine().NextTimer(), open + absl::Seconds(8 + 1));
}

}  // namespace
}  // namespace atl::coordinator
