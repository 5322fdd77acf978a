// A member that heartbeats but never delivers, and what an operator can do.

#include <string>

#include "base/time/proto_time.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HeldRoundTest : public RunSimulationTest {
 protected:
  v1::GetRunStateResponse Shown() const {
    return BuildRunState(run_->machine(), *run_);
  }
  // The only waiting round.
  v1::WaitingRound Waiting() const {
    const v1::GetRunStateResponse shown = Shown();
    EXPECT_EQ(shown.waiting_rounds_size(), 1) << shown.ShortDebugString();
    return shown.waiting_rounds_size() == 1 ? shown.waiting_rounds(0)
                                            : v1::WaitingRound();
  }
  double SampledWait() const {
    VolatileSeries series;
    SampleSeries(run_->machine(), run_->now(), series);
    return series.round_wait.back().value();
  }
  v1::IslandState FindState(const std::string& id) const {
    return run_->state().FindMember(id)->record.state();
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

// The run's bits do not depend on time, so no clock ends its rounds.
TEST_F(HeldRoundTest, NamesTrainersThatSayNothing) {
  Start(SimpleSpec());
  const auto report = [&](const std::string& id, double seconds) {
    v1::ReportProgressRequest progress;
    progress.set_trainer_silence_seconds(seconds);
    return run_->machine()
        .Step(event::Progress{run_->Credentials(id), progress}, run_->now())
        .status();
  };
  ASSERT_TRUE(report("i0", 29).ok());
  ASSERT_TRUE(report("i1", 31).ok());
  ASSERT_EQ(Shown().silent_trainers_size(), 1);
  EXPECT_EQ(Shown().silent_trainers(0).island_id(), "i1");
  EXPECT_EQ(Shown().silent_trainers(0).silence_seconds(), 31);
  // It answers, or leaves.
  ASSERT_TRUE(report("i1", 0).ok());
  EXPECT_TRUE(Shown().silent_trainers().empty());
  ASSERT_TRUE(report("i1", 31).ok());
  ASSERT_TRUE(run_->Leave("i1").ok());
  EXPECT_TRUE(Shown().silent_trainers().empty());
  EXPECT_FALSE(report("i0", -1).ok());
}

TEST_F(HeldRoundTest, AStrictRunTakesNoDeadlineAndWaitsForWhoHeartbeats) {
  v1::RunSpec timed = SimpleSpec();
  timed.mutable_schedule()->mutable_round_deadline()->set_seconds(60);
  const auto violations = ValidateSpec(timed);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.schedule.round_deadline");

  Start(SimpleSpec());
  JoinReady("i2");  // Spare: only asked if another leaves.
  run_->PushAll("i0");
  run_->Pass(absl::Minutes(10));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(run_->fragment(0).attempt, 0);
  EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_READY);
  EXPECT_EQ(run_->machine().waits_for(),
            "fragment 0, round 1: 1 of 2 contributions; waits for i1");
}

TEST_F(HeldRoundTest, TheStateSaysWhoHoldsARoundUpAndSinceWhen) {
  Start(SimpleSpec(), 2);
  const absl::Time opened = run_->now();
  EXPECT_EQ(FromProto(Waiting().since_time()), opened);
  EXPECT_THAT(Waiting().island_ids(), ElementsAre("i0", "i1"));
  run_->Pass(absl::Minutes(10));
  EXPECT_EQ(FromProto(Waiting().since_time()), opened);
  EXPECT_EQ(SampledWait(), 600);
  run_->Push("i0", 0, 0);  // A part is no progress.
  EXPECT_EQ(Waiting().received_count(), 0);
  run_->PushAll("i0");
  const absl::Time received = run_->now();
  EXPECT_EQ(SampledWait(), 0);
  run_->Pass(absl::Minutes(10));
  const v1::WaitingRound held = Waiting();
  EXPECT_EQ(held.fragment(), 0);
  EXPECT_EQ(held.version(), 0);
  EXPECT_EQ(held.expected_count(), 2);
  EXPECT_EQ(held.received_count(), 1);
  EXPECT_EQ(held.awaited_count(), 1);
  EXPECT_THAT(held.island_ids(), ElementsAre("i1"));
  EXPECT_EQ(FromProto(held.since_time()), received);
  EXPECT_EQ(SampledWait(), 600);
}

TEST_F(HeldRoundTest, WhatIsLostAndComesAgainIsNoNews) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  const absl::Time received = run_->now();
  run_->Pass(absl::Minutes(1));
  ASSERT_TRUE(run_->Lose("i0", 0, 0));
  EXPECT_EQ(Waiting().received_count(), 0);
  EXPECT_THAT(Waiting().island_ids(), ElementsAre("i0", "i1"));
  ASSERT_TRUE(run_->PushAgain("i0"));
  EXPECT_EQ(Waiting().received_count(), 1);
  EXPECT_EQ(FromProto(Waiting().since_time()), received);
}

TEST_F(HeldRoundTest, WhatComesWhileAnotherIsLostIsNews) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->Pass(absl::Minutes(1));
  ASSERT_TRUE(run_->Lose("i0", 0, 0));
  run_->Pass(absl::Minutes(1));
  run_->PushAll("i1");
  EXPECT_EQ(Waiting().received_count(), 1);
  EXPECT_THAT(Waiting().island_ids(), ElementsAre("i0"));
  EXPECT_EQ(FromProto(Waiting().since_time()), run_->now());
}

TEST_F(HeldRoundTest, APauseIsNotWaitedFor) {
  Start(SimpleSpec());
  run_->Pass(absl::Minutes(1));
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  run_->Flush();
  run_->Pass(absl::Minutes(10));
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  run_->Flush();
  EXPECT_EQ(FromProto(Waiting().since_time()), run_->now());
  EXPECT_EQ(SampledWait(), 0);
  run_->Pass(absl::Minutes(1));
  EXPECT_EQ(SampledWait(), 60);
}

TEST_F(HeldRoundTest, TheNextRoundWaitsAnew) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->Pass(absl::Minutes(10));
  run_->PushAll("i1");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(Shown().waiting_rounds_size(), 0);
  EXPECT_EQ(SampledWait(), 0);
  run_->FollowPlans();
  ASSERT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(Waiting().version(), 1);
  EXPECT_EQ(Waiting().received_count(), 0);
  EXPECT_EQ(FromProto(Waiting().since_time()), run_->now());
  // An island counts as new in each round.
  run_->Pass(absl::Minutes(1));
  run_->PushAll("i0");
  EXPECT_EQ(Waiting().received_count(), 1);
  EXPECT_EQ(FromProto(Waiting().since_time()), run_->now());
}

TEST_F(HeldRoundTest, ARestartOfTheCoordinatorKeepsWhenTheRoundWasOpened) {
  Start(SimpleSpec());
  const absl::Time opened = run_->now();
  run_->Pass(absl::Minutes(10));
  run_->Restart();
  EXPECT_EQ(FromProto(Waiting().since_time()), opened);
  EXPECT_EQ(Waiting().awaited_count(), 2);
}

TEST_F(HeldRoundTest, OfManyTheFirstAreNamedAndAllCounted) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_island_count_min(8);
  spec.mutable_data()->set_data_shard_count(8);
  Start(spec, 8);
  run_->PushAll("i0");
  EXPECT_EQ(Waiting().awaited_count(), 7);
  EXPECT_THAT(Waiting().island_ids(),
              ElementsAre("i1", "i2", "i3", "i4", "i5"));
}

TEST_F(HeldRoundTest, OnlyWhatGoesOnWithADeliveryWaits) {
  Start(SimpleSpec());
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  run_->Flush();
  EXPECT_EQ(Shown().waiting_rounds_size(), 0);
  EXPECT_EQ(SampledWait(), 0);
  Start(AsyncSpec());
  EXPECT_EQ(Shown().waiting_rounds_size(), 0);
}

// Without a quorum a deadline asks other ready islands or starts over. The
// state still shows since when the round waits.
TEST_F(HeldRoundTest, ADeadlineWithoutAQuorumAsksOthersOrStartsOver) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_min_quorum(2);
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(60);
  Start(spec);
  run_->PushAll("i0");
  const absl::Time received = run_->now();
  run_->Pass(absl::Seconds(150));
  EXPECT_EQ(run_->fragment(0).attempt, 0);
  EXPECT_EQ(FromProto(Waiting().since_time()), received);
  JoinReady("i2");
  EXPECT_EQ(run_->fragment(0).attempt, 0);
  run_->Pass(absl::Seconds(60));
  EXPECT_EQ(run_->fragment(0).attempt, 1);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1, 2));
  run_->PushAll("i2");
  run_->Pass(absl::Seconds(2));
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(HeldRoundTest, ARemovedIslandIsNotAwaitedAndTheRestGoesOn) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_island_count_min(3);
  Start(spec, 3);
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->Pass(absl::Minutes(10));
  ASSERT_EQ(Phase(), RoundPhase::kOpen);
  ASSERT_TRUE(run_->Remove("i2").ok());
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->Heartbeat("i2").code(),
            absl::StatusCode::kFailedPrecondition);
  run_->FollowPlans();
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
  run_->Settle();
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_COMPLETED);
}

TEST_F(HeldRoundTest, ARemovedIslandsPlaceGoesToASpare) {
  Start(SimpleSpec());
  JoinReady("i2");
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Remove("i1").ok());
  EXPECT_EQ(run_->fragment(0).attempt, 1);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 2));
  run_->PushAll("i2");
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(HeldRoundTest, WithoutASpareItIsSaidThatAnotherIslandIsMissing) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Remove("i1").ok());
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("another island"));
  EXPECT_EQ(Waiting().awaited_count(), 0);
  JoinReady("i2");
  run_->PushAll("i2");
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

// A shard that has not reported may hold contributions.
TEST_F(HeldRoundTest, NoRoundIsGivenUpBeforeAllItsShardsHaveReported) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_min_quorum(1);
  Start(spec);
  JoinReady("i2");
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Leave("i0").ok());
  run_->Restart();
  run_->FollowPlan(0);  // The server of shard 1 is away.
  ASSERT_TRUE(run_->Remove("i1").ok());
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(run_->fragment(0).attempt, 0);
  EXPECT_THAT(run_->machine().waits_for(),
              HasSubstr("waits for the report of shard 1"));
  run_->FollowPlan(1);
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
}

TEST_F(HeldRoundTest, NoDeadlineGivesUpARoundBeforeAllItsShardsHaveReported) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_min_quorum(2);
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(60);
  Start(spec);
  JoinReady("i2");
  run_->PushAll("i0");
  run_->Restart();
  run_->FollowPlan(0);
  run_->Pass(absl::Seconds(150));
  EXPECT_EQ(run_->fragment(0).attempt, 0);
  EXPECT_THAT(run_->machine().waits_for(),
              HasSubstr("waits for the report of shard 1"));
  run_->FollowPlan(1);
  run_->Pass(absl::Seconds(60));
  EXPECT_EQ(run_->fragment(0).attempt, 1);
}

TEST_F(HeldRoundTest, NoRefusalPausesARunBeforeAllItsShardsHaveReported) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_min_quorum(1);
  Start(spec);
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Leave("i0").ok());
  run_->Restart();
  run_->RefusePush("i1", 0, 0);
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(run_->machine().waits_for(),
              HasSubstr("waits for the report of shard 1"));
  run_->FollowPlan(1);
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(HeldRoundTest, WhatARemovedIslandHadPushedStays) {
  Start(SimpleSpec());
  run_->PushAll("i1");
  ASSERT_TRUE(run_->Remove("i1").ok());
  run_->PushAll("i0");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->fragment(0).sealed.seal().contributions_size(), 2);
}

TEST_F(HeldRoundTest, ARemovedIslandStaysOutUntilItIsLetInAgain) {
  Start(SimpleSpec());
  ASSERT_TRUE(run_->Remove("i1").ok());
  ASSERT_TRUE(run_->Remove("i1").ok());  // No effect.
  EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_REMOVED);
  for (const int64_t snapshot : {int64_t{0}, run_->state().revision()}) {
    run_->Restart(snapshot);
    const absl::Status refused = run_->Join("i1");
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(refused.message(), HasSubstr("atoll island readmit run i1"));
  }
  ASSERT_TRUE(run_->Remove("i1", /*readmit=*/true).ok());
  for (const int64_t snapshot : {int64_t{0}, run_->state().revision()}) {
    run_->Restart(snapshot);
    EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_READMITTED);
  }
  JoinReady("i1");
  EXPECT_EQ(run_->state().FindMember("i1")->record.slot(), 1);
  ASSERT_TRUE(run_->Remove("i1", /*readmit=*/true).ok());
  EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_READY);
  run_->Settle();
  EXPECT_EQ(run_->state().state(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->Remove("i1").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(HeldRoundTest, OnlyWhoHasJoinedCanBeRemoved) {
  Start(SimpleSpec());
  EXPECT_EQ(run_->Remove("nobody").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace atl::coordinator
