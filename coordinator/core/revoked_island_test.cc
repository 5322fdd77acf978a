// The contributions of an island that an operator revokes.

#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class RevokedIslandTest : public RunSimulationTest {
 protected:
  // A round is open for i0, i1 and i2.
  void StartElastic() {
    v1::RunSpec spec = ElasticSpec();
    spec.mutable_schedule()->set_island_count_min(3);
    Start(spec, 3);
    ASSERT_EQ(run_->Expected(), (std::vector<int32_t>{0, 1, 2}));
  }
  void Pause() {
    ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).ok());
    run_->Flush();
  }
  // The slots of the sealed set.
  std::vector<int32_t> Sealed() const {
    std::vector<int32_t> slots;
    for (const auto& sealed :
         run_->fragment(0).sealed.seal().contributions()) {
      slots.push_back(sealed.key().slot());
    }
    return slots;
  }
};

TEST_F(RevokedIslandTest, ItsUnsealedContributionIsDroppedForGood) {
  StartElastic();
  run_->PushAll("i0");
  run_->PushAll("i1");
  ASSERT_EQ(Phase(), RoundPhase::kOpen);
  ASSERT_TRUE(run_->Revoke("i1").ok());
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->Restart();
  for (int32_t shard = 0; shard < run_->shard_count(); ++shard) {
    run_->FollowPlan(shard);
  }
  run_->PushAll("i2");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(Sealed(), (std::vector<int32_t>{0, 2}));
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->CheckLog();
}

TEST_F(RevokedIslandTest, APausedRunDropsItToo) {
  StartElastic();
  run_->PushAll("i1");
  Pause();
  ASSERT_TRUE(run_->Revoke("i1").ok());
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->CheckLog();
}

TEST_F(RevokedIslandTest, WhatComesLaterIsDroppedWhenItIsReported) {
  StartElastic();
  ASSERT_TRUE(run_->Train("i1", 0));
  ASSERT_TRUE(run_->Revoke("i1").ok());
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_UNSPECIFIED);
  run_->PushLate("i1", 0);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->CheckLog();
}

TEST_F(RevokedIslandTest, WhatIsSealedIsMerged) {
  Start(ElasticSpec());
  run_->PushAll("i0");
  run_->PushAll("i1");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  ASSERT_TRUE(run_->Revoke("i1").ok());
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_UNSPECIFIED);
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
  run_->CheckLog();
}

TEST_F(RevokedIslandTest, AnIslandThatIsOnlyRemovedKeepsItsContribution) {
  StartElastic();
  run_->PushAll("i0");
  run_->PushAll("i1");
  ASSERT_TRUE(run_->Remove("i1").ok());
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_UNSPECIFIED);
  ASSERT_TRUE(run_->Revoke("i1").ok()) << "a removed one can be revoked";
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->CheckLog();
}

TEST_F(RevokedIslandTest, AnAsyncRunDropsItToo) {
  Start(AsyncSpec());
  ASSERT_TRUE(run_->Train("i1", 0));
  Pause();
  run_->PushLate("i1", 0);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_UNSPECIFIED);
  ASSERT_TRUE(run_->Revoke("i1").ok());
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->CheckLog();
}

}  // namespace
}  // namespace atl::coordinator
