#include "coordinator/core/rounds/async_rounds.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AsyncRoundsTest : public RunSimulationTest {
 protected:
  void PushEverywhere(const std::string& id, int32_t f = 0) {
    for (int32_t s = 0; s < run_->shard_count(); ++s) run_->Push(id, f, s);
  }
  // Makes, pushes and merges a contribution of the island.
  void Merge(const std::string& id, int32_t f = 0) {
    const int64_t version = Version(f);
    PushEverywhere(id, f);
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(Version(f), version + 1) << run_->machine().waits_for();
  }
  int64_t Version(int32_t f = 0) const {
    return run_->fragment(f).newest.version();
  }
  v1::SlotPlan MakePlan(int32_t slot, int32_t f = 0) const {
    for (const v1::SlotPlan& plan : run_->fragment(f).open.slots()) {
      if (plan.slot() == slot) return plan;
    }
    return {};
  }
  void SetSpeed(const std::string& id, double tokens_per_second) {
    v1::ReportProgressRequest report;
    report.set_tokens_per_second(tokens_per_second);
    ASSERT_TRUE(
        run_->machine()
            .Step(event::Progress{run_->Credentials(id), report}, run_->now())
            .status()
            .ok());
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(AsyncRoundsTest, WithoutAnIslandItIsSaidThatOneIsMissing) {
  Start(AsyncSpec());
  for (const char* id : {"i0", "i1"}) ASSERT_TRUE(run_->Remove(id).ok());
  EXPECT_EQ(run_->machine().waits_for(),
            "fragment 0, version 0: waits for an island to join or come back");
  JoinReady("i2");
  Merge("i2");
}

TEST_F(AsyncRoundsTest, MergesOneContributionAVersionAndWaitsForNobody) {
  Start(AsyncSpec());
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
  Merge("i1");
  EXPECT_EQ(Phase(), RoundPhase::kOpen) << "the next OPEN stands at once";
  Merge("i1");
  Merge("i0");
  EXPECT_EQ(run_->state().commit_seq(), 3);
}

TEST_F(AsyncRoundsTest, MergesWhatCameTogetherOneByOneTheOldestAnchorFirst) {
  Start(AsyncSpec(), 3);
  run_->Train("i2", 0);
  Merge("i0");
  // All three train before anything is merged.
  run_->Train("i0", 0);
  run_->Train("i1", 0);
  run_->Push("i0", 0, 0);
  run_->Push("i1", 0, 0);
  PushEverywhere("i2");
  EXPECT_EQ(run_->fragment(0).sealed.seal().contributions(0).key().slot(), 2);
  PushEverywhere("i1");
  PushEverywhere("i0");
  std::vector<int32_t> order;
  while (Phase() == RoundPhase::kSealed) {
    order.push_back(
        run_->fragment(0).sealed.seal().contributions(0).key().slot());
    run_->FollowPlans();
  }
  EXPECT_THAT(order, ElementsAre(2, 0, 1));
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
}

TEST_F(AsyncRoundsTest, MergesFromAnOlderAnchorUpToMaxStalenessAndNoFurther) {
  v1::RunSpec spec = AsyncSpec();
  spec.mutable_schedule()->set_max_staleness(2);
  Start(spec, 3);
  run_->Train("i1", 0);
  run_->Train("i2", 0);
  Merge("i0");
  Merge("i0");
  Merge("i1");  // Version 2, made from 0: just fresh enough.
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
  // Version 3: i2's contribution from version 0 is one version too late.
  run_->PushLate("i2", 0);
  EXPECT_EQ(run_->FindOutcome("i2"), v1::OUTCOME_STALE);
  EXPECT_EQ(Version(), 3);
}

TEST_F(AsyncRoundsTest, CallsAHalfPushedOneStaleOnceNothingCanTakeIt) {
  v1::RunSpec spec = AsyncSpec();
  spec.mutable_schedule()->set_max_staleness(1);
  Start(spec);
  run_->Push("i1", 0, 0);
  Merge("i0");
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_UNSPECIFIED);
  Merge("i0");
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_STALE);
}

TEST_F(AsyncRoundsTest, LeavesThePlanOfWhoIsInTheMiddleAloneUntilItsOutcome) {
  Start(AsyncSpec(), 3);
  SetSpeed("i0", 100);
  SetSpeed("i1", 100);
  const v1::SlotPlan before = MakePlan(1);
  EXPECT_EQ(before.start_step(), 0);
  run_->Train("i1", 0);
  SetSpeed("i0", 400);
  SetSpeed("i2", 400);
  Merge("i0");
  Merge("i0");
  EXPECT_EQ(MakePlan(1).DebugString(), before.DebugString());
  EXPECT_EQ(MakePlan(0).start_step(), 2 * 4) << "its own goes on";
  PushEverywhere("i1");
  run_->FollowPlans();
  ASSERT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
  // The COMMIT that decides the contribution also brings the next plan: DyLU.
  EXPECT_EQ(MakePlan(1).step_count(), 1);
  EXPECT_EQ(MakePlan(1).start_step(), 3 * 4);
  EXPECT_EQ(run_->state().DataPosition(before.data_shard(), 1),
            before.data_position() + 8);
}

TEST_F(AsyncRoundsTest, GivesStepsByTheMedianSpeedOfTheLiveIslands) {
  Start(AsyncSpec(), 3);
  SetSpeed("i0", 100);
  SetSpeed("i1", 51);
  SetSpeed("i2", 300);
  Merge("i0");
  EXPECT_EQ(MakePlan(0).step_count(), 4);
  Merge("i1");
  EXPECT_EQ(MakePlan(1).step_count(), 2);  // floor(51 / 100 * 4)
  ASSERT_TRUE(run_->Leave("i2").ok());
  Merge("i1");
  EXPECT_EQ(MakePlan(1).step_count(), 4) << "of two the lower is the median";
}

TEST_F(AsyncRoundsTest, GivesAPlanAnewAfterAStaleOne) {
  v1::RunSpec spec = AsyncSpec();
  spec.mutable_schedule()->set_max_staleness(1);
  Start(spec);
  run_->Train("i1", 0);
  Merge("i0");
  Merge("i0");
  run_->PushLate("i1", 0);
  ASSERT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_STALE);
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(MakePlan(1).start_step(), 2 * 4);
}

TEST_F(AsyncRoundsTest, MakesAPlanAnewThatTheOthersAreTooFastFor) {
  Start(AsyncSpec(), 3);
  for (int v = 0; v < 4; ++v) {  // max_staleness is 3.
    EXPECT_EQ(MakePlan(2).start_step(), 0) << v;
    EXPECT_EQ(MakePlan(2).step_count(), 4) << v;
    run_->Pass(absl::Seconds(1));
    Merge(v % 2 == 0 ? "i0" : "i1");
  }
  // At most 4 steps in 4 s; the others take 4 in 2 s.
  EXPECT_EQ(MakePlan(2).start_step(), 4 * 4);
  EXPECT_EQ(MakePlan(2).step_count(), 2);
  EXPECT_EQ(MakePlan(0).step_count(), 4);
}

TEST_F(AsyncRoundsTest, AnIslandWithATokenIsMergedAtTheMedianPaceAtMost) {
  Start(AsyncSpec(), 3);
  for (const char* id : {"i0", "i1", "i2"}) SetSpeed(id, 40);  // 2 steps a s.
  ASSERT_TRUE(run_->Join("i3", "t").ok());
  ASSERT_TRUE(run_->Ready("i3").ok());
  run_->FollowPlans();
  const absl::Time open = run_->now();
  run_->Pass(absl::Seconds(0.1));
  PushEverywhere("i3");
  run_->FollowPlans();
  EXPECT_EQ(Version(), 0) << "four steps are due after 2 s";
  EXPECT_EQ(run_->machine().NextTimer(), open + absl::Seconds(2));
  run_->Pass(absl::Seconds(0.4));
  Merge("i0");  // The others go on.
  run_->Pass(absl::Seconds(1.5));
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i3"), v1::OUTCOME_MERGED);
}

TEST_F(AsyncRoundsTest, AsksAJoinerAtOnceAlsoWhereNobodyElseIsLeft) {
  Start(AsyncSpec());
  Merge("i0");
  JoinReady("late");
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1, 2));
  EXPECT_EQ(MakePlan(2).start_step(), 4);
  ASSERT_TRUE(run_->Leave("i0").ok());
  ASSERT_TRUE(run_->Leave("i1").ok());
  Merge("late");
  EXPECT_EQ(run_->FindOutcome("late"), v1::OUTCOME_MERGED);
}

TEST_F(AsyncRoundsTest, KeepsThePlanOfARestartAndForgetsThatOfTheLost) {
  Start(AsyncSpec());
  const v1::SlotPlan before = MakePlan(1);
  ASSERT_TRUE(run_->Join("i1").ok());  // A new life, not ready yet.
  Merge("i0");
  EXPECT_EQ(MakePlan(1).DebugString(), before.DebugString());
  run_->Pass(absl::Seconds(31), {"i1"});
  Merge("i0");
  EXPECT_THAT(run_->Expected(), ElementsAre(0));
  JoinReady("i1");
  EXPECT_EQ(MakePlan(1).start_step(), 2 * 4);
}

TEST_F(AsyncRoundsTest, MergesWhatALostIslandHasLeftBehind) {
  Start(AsyncSpec());
  run_->Push("i1", 0, 0);
  run_->Pass(absl::Seconds(31), {"i1"});
  Merge("i0");
  PushEverywhere("i1");  // Pushed before it was lost.
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
  EXPECT_EQ(run_->state().merged_token_count(), 2 * 4 * 20);
}

TEST_F(AsyncRoundsTest, RejectsARefusedOneAloneAndGoesOn) {
  Start(AsyncSpec());
  run_->RefusePush("i1", 0, 0);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_ACTIVE);
  // It sits out as many commits as there are islands.
  Merge("i0");
  Merge("i0");
  Merge("i1");
}

TEST_F(AsyncRoundsTest, FragmentsGoTheirOwnWayAndEndTogether) {
  v1::RunSpec spec = AsyncSpec(2);
  spec.set_checkpoint_every_round_count(2);
  Start(spec);
  Merge("i0", 0);
  Merge("i0", 0);
  EXPECT_EQ(Version(0), 2);
  EXPECT_EQ(Version(1), 0);
  // The newest cut, whatever version the other fragment has.
  ASSERT_TRUE(run_->state().pins().contains("round-2"));
  EXPECT_EQ(run_->state().pins().at("round-2").pin_set().pin().cut(1).version(),
            0);
  run_->Settle();
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(Version(0), 8);
  EXPECT_EQ(Version(1), 8);
  run_->FollowPlans();
  run_->CheckAllDecided();
}

TEST_F(AsyncRoundsTest, ReadsTheFreeDataShardThatWasReadLeast) {
  v1::RunSpec spec = AsyncSpec();
  Start(spec);  // 4 data shards, 2 islands: each reads two.
  std::set<int32_t> read;
  for (int i = 0; i < 4; ++i) {
    read.insert(MakePlan(0).data_shard());
    Merge("i0");
    Merge("i1");
  }
  EXPECT_EQ(read.size(), 2u);
}

TEST_F(AsyncRoundsTest, ARestartOfTheCoordinatorChangesNoPlan) {
  Start(AsyncSpec());
  SetSpeed("i0", 100);
  SetSpeed("i1", 400);
  Merge("i0");
  const std::string before = run_->fragment(0).open.DebugString();
  for (int64_t snapshot : {int64_t{0}, run_->state().revision()}) {
    run_->Restart(snapshot);
    EXPECT_EQ(run_->fragment(0).open.DebugString(), before);
  }
  Merge("i1");
}

TEST_F(AsyncRoundsTest, IslandsSeeTheOpenStandWhileOneIsMerged) {
  Start(AsyncSpec());
  PushEverywhere("i0");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  const v1::IslandPlan plan =
      BuildSharedIslandPlan(run_->state(), run_->machine().observed(), *run_);
  ASSERT_EQ(plan.open_rounds_size(), 1);
  EXPECT_EQ(plan.open_rounds(0).slot_count(), 2);
}

TEST_F(AsyncRoundsTest, SealsNothingWhilePausedAndSaysWhomItWaitsFor) {
  Start(AsyncSpec());
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i0, i1"));
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  PushEverywhere("i0");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->machine().NextTimer(), run_->now() + absl::Seconds(30))
      << "only leases end";
}

}  // namespace
}  // namespace atl::coordinator
