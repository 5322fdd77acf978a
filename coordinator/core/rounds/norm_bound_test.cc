#include "coordinator/core/rounds/norm_bound.h"

#include <cmath>
#include <memory>
#include <string>

#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

v1::RunSpec Bounded(double factor = 8, int fragment_count = 1) {
  v1::RunSpec spec = ElasticSpec(fragment_count);
  spec.mutable_schedule()->set_island_count_min(3);
  spec.mutable_schedule()->set_round_count(200);
  spec.mutable_schedule()->mutable_grace_window()->set_seconds(3600);
  spec.mutable_outer()->set_enrolled_norm_factor(factor);
  return spec;
}

class NormBoundTest : public RunSimulationTest {
 protected:
  // i0 and i1 are the operator's own, i2 has enrolled.
  void StartMixed(const v1::RunSpec& spec, double version0_squared = 50) {
    run_ = std::make_unique<RunSimulation>(spec);
    run_->version0_norm_squared = version0_squared;
    run_->StartServers();
    JoinReady("i0");
    JoinReady("i1");
    run_->share_of_token = 0;
    ASSERT_TRUE(run_->Join("i2", "token").ok());
    ASSERT_TRUE(run_->Ready("i2").ok());
  }
  void Push(const std::string& id, double norm) {
    run_->push_norm_squared = norm * norm / run_->shard_count();
    for (int32_t s = 0; s < run_->shard_count(); ++s) run_->Push(id, 0, s);
  }
  // A round in which i2 pushes `norm`, and the others 2. Returns its outcome.
  v1::Outcome Round(double norm) {
    Push("i0", 2);
    Push("i1", 2);
    Push("i2", norm);
    run_->FollowPlans();
    run_->FollowPlans();
    return run_->FindOutcome("i2");
  }
  const Member& enrolled() const { return run_->state().members()[2]; }
  void TearDown() override {
    if (run_ == nullptr) return;
    run_->CheckLog();
    run_->Restart();
    run_->Restart(static_cast<int64_t>(run_->log().size()));
  }
};

TEST_F(NormBoundTest, BeforeTheEighthMergeTheBoundIsTheNormOfVersion0) {
  StartMixed(Bounded());
  EXPECT_EQ(Round(9.999), v1::OUTCOME_MERGED);  // sqrt(50 + 50) = 10
  EXPECT_EQ(Round(10.001), v1::OUTCOME_REJECTED);
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().commit_seq(), 2);
  EXPECT_THAT(enrolled().refusal,
              AllOf(StartsWith("NORM_TOO_LARGE: its norm, 10.001, is above 10, "
                               "the norm of version 0"),
                    HasSubstr("island i2, round 2")));
}

TEST_F(NormBoundTest, FromTheEighthOnTheMedianByStepsCounts) {
  StartMixed(Bounded());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Round(2), v1::OUTCOME_MERGED);
  ASSERT_THAT(run_->fragment(0).step_norms, SizeIs(9));
  EXPECT_THAT(run_->fragment(0).step_norms,  // 2 in 4 steps.
              Each(AllOf(Field(&StepNorm::norm_by_steps, 0.5),
                         Field(&StepNorm::step_count, 4))));
  EXPECT_EQ(Round(15.99), v1::OUTCOME_MERGED);  // 8 x 0.5 x 4 = 16
  EXPECT_EQ(Round(16.01), v1::OUTCOME_REJECTED);
  EXPECT_THAT(enrolled().refusal,
              HasSubstr("is above 16, 8 x 0.5 a step (median of 12 merged) x 4 "
                        "steps"));
}

// The norms of random walks: the root of the steps.
class FewStepsTest : public NormBoundTest {
 protected:
  static constexpr int64_t kSteps = 500;
  void SetUp() override {
    v1::RunSpec spec = Bounded(2);
    spec.mutable_schedule()->set_inner_step_count(kSteps);
    StartMixed(spec, 1e6);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(RoundOf(kSteps, std::sqrt(kSteps)), v1::OUTCOME_MERGED);
    }
  }
  // i2 pushes `norm` after `steps`; the others walk all steps.
  v1::Outcome RoundOf(int64_t steps, double norm) {
    Push("i0", std::sqrt(kSteps));
    Push("i1", std::sqrt(kSteps));
    run_->claimed_step_count = steps;
    Push("i2", norm);
    run_->claimed_step_count = 0;
    run_->FollowPlans();
    run_->FollowPlans();
    return run_->FindOutcome("i2");
  }
};

TEST_F(FewStepsTest, AnHonestIslandWithOneStepOfFiveHundredIsMerged) {
  for (const int64_t steps : {1, 2, 10, 25, 125}) {
    EXPECT_EQ(RoundOf(steps, std::sqrt(steps)), v1::OUTCOME_MERGED) << steps;
  }
}

// Blended parameters: what the island lacks of the merged ones counts too.
TEST_F(FewStepsTest, ANormThatDoesNotDependOnTheStepsIsMerged) {
  EXPECT_EQ(RoundOf(1, std::sqrt(kSteps)), v1::OUTCOME_MERGED);
}

TEST_F(FewStepsTest, OneStepHasNoMoreRoomThanTheMediansSteps) {
  EXPECT_EQ(FindNormBound(run_->state(), 0, 1).value,
            FindNormBound(run_->state(), 0, kSteps).value);
  EXPECT_EQ(FindNormBound(run_->state(), 0, 2 * kSteps).value,
            2 * FindNormBound(run_->state(), 0, kSteps).value);
  EXPECT_EQ(RoundOf(1, 2.001 * std::sqrt(kSteps)), v1::OUTCOME_REJECTED);
}

TEST_F(FewStepsTest, AHundredfoldNormOfOneStepIsRefused) {
  EXPECT_EQ(RoundOf(1, 100 * std::sqrt(kSteps)), v1::OUTCOME_REJECTED);
}

TEST_F(FewStepsTest, AHugeNormOfOneStepIsRefused) {
  EXPECT_EQ(RoundOf(1, 1e30), v1::OUTCOME_REJECTED);
}

// As if a snapshot of the commit before were read.
TEST_F(FewStepsTest, WithoutTheMergedStepCountsStepsCountAsTheyAre) {
  storage::v1::RunSnapshot snapshot = run_->state().ToSnapshot();
  snapshot.mutable_fragments(0)->clear_step_norm_step_counts();
  RunState restored;
  ASSERT_TRUE(restored.Restore(snapshot, run_->state().revision()).ok());
  EXPECT_DOUBLE_EQ(FindNormBound(restored, 0, 1).value,
                   2 * std::sqrt(kSteps) / kSteps);
}

TEST_F(NormBoundTest, TheShardCountDoesNotMatter) {
  for (const int shards : {1, 3}) {
    v1::RunSpec spec = Bounded();
    spec.set_server_count(shards);
    StartMixed(spec, 100.0 / shards);
    EXPECT_EQ(Round(9.999), v1::OUTCOME_MERGED) << shards;
    EXPECT_EQ(Round(10.001), v1::OUTCOME_REJECTED) << shards;
  }
}

TEST_F(NormBoundTest, OneHugeContributionOfAnEnrolledIslandHarmsNobody) {
  StartMixed(Bounded());
  EXPECT_EQ(Round(1e30), v1::OUTCOME_REJECTED);
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
  EXPECT_EQ(run_->fragment(0).newest.version(), 1);
}

TEST_F(NormBoundTest, TheOperatorsOwnIslandsAreNamedButNotRefused) {
  StartMixed(Bounded());
  Push("i0", 1e6);
  Push("i1", 2);
  Push("i2", 2);
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
  for (const storage::v1::Record& record : run_->log()) {
    if (!record.has_round_committed()) continue;
    const auto& round = record.round_committed().round();
    EXPECT_EQ(round.contributions(0).norm(), 1e6);
    EXPECT_EQ(round.contributions(0).norm_bound(), 10);
  }
}

TEST_F(NormBoundTest, WithoutAFactorNothingIsBounded) {
  StartMixed(Bounded(0));
  EXPECT_EQ(Round(1e30), v1::OUTCOME_MERGED);
}

TEST_F(NormBoundTest, AVersion0OfZerosTakesTheRootOfTheElementCount) {
  StartMixed(Bounded(), 0);
  EXPECT_EQ(FindNormBound(run_->state(), 0, 4).value, std::sqrt(3 * 4096.0));
}

TEST_F(NormBoundTest, AnOldServersVersion0IsExpectedFromTheLayout) {
  v1::RunSpec spec = Bounded();
  v1::TensorInit& init =
      *spec.mutable_layout()->mutable_tensors(0)->mutable_init();
  init.set_kind(v1::INIT_KIND_NORMAL);
  init.set_value(0.5);
  StartMixed(spec, -1);
  EXPECT_THAT(run_->state().version0_norms(), IsEmpty());
  EXPECT_DOUBLE_EQ(FindNormBound(run_->state(), 0, 4).value,
                   0.5 * std::sqrt(3 * 4096.0));
}

TEST_F(NormBoundTest, AClaimCountsForThePlannedStepsAtMost) {
  v1::RunSpec spec = Bounded();
  spec.mutable_schedule()->set_max_ahead_steps(2);
  StartMixed(spec);
  EXPECT_EQ(CountBoundedSteps(run_->state(), 0, 0, 1'000'000), 4 + 2);
  EXPECT_EQ(CountBoundedSteps(run_->state(), 0, 2, 1'000'000), 4)
      << "steps ahead are the word of an enrolled island alone";
  EXPECT_EQ(CountBoundedSteps(run_->state(), 0, 2, 3), 3);
  EXPECT_EQ(CountBoundedSteps(run_->state(), 0, 2, -5), 1);
}

TEST_F(NormBoundTest, OnlyTheNewestSixtyFourCount) {
  StartMixed(Bounded());
  for (int i = 0; i < 23; ++i) ASSERT_EQ(Round(2), v1::OUTCOME_MERGED);
  EXPECT_THAT(run_->fragment(0).step_norms, SizeIs(kStepNormsMax));
}

}  // namespace
}  // namespace atl::coordinator
