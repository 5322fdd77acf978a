#include "coordinator/core/run_machine.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "coordinator/core/outputs/island_warning.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunMachineTest : public RunSimulationTest {
 protected:
  v1::RunState State() const { return run_->state().state(); }
  int64_t Version(int32_t f = 0) const {
    return run_->fragment(f).newest.version();
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(RunMachineTest, StartsOnceEveryServerHasVersionZero) {
  run_ = std::make_unique<RunSimulation>(SimpleSpec());
  EXPECT_EQ(State(), v1::RUN_STATE_STARTING);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("0 of 2"));
  EXPECT_EQ(run_->Join("i0").code(), absl::StatusCode::kOk);
  EXPECT_EQ(run_->Ready("i0").code(), absl::StatusCode::kFailedPrecondition);
  run_->StartServers();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(run_->state().server_ids(), ElementsAre("server-0", "server-1"));
  // The digest is the sum over shards.
  EXPECT_EQ(run_->state().version0()[0].digest().low(), 2u);
}

TEST_F(RunMachineTest, StartsFromTheImportThatItWasCreatedForAndNoOther) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_init()->set_import(true);
  spec.mutable_init()->add_fragment_digests(std::string(31, '0') + "3");
  run_ = std::make_unique<RunSimulation>(spec);
  run_->StartServers();
  EXPECT_EQ(State(), v1::RUN_STATE_STARTING);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("another model"));
  spec.mutable_init()->set_fragment_digests(0, std::string(31, '0') + "2");
  run_ = std::make_unique<RunSimulation>(spec);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("0 of 2"));
  run_->StartServers();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
}

TEST_F(RunMachineTest, OpensTheFirstRoundWhenEnoughIslandsAreReady) {
  Start(SimpleSpec(), 1);
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("1 of 2"));
  JoinReady("i1");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
}

TEST_F(RunMachineTest, RunsAStrictRunToItsEnd) {
  Start(SimpleSpec());
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->state().commit_seq(), 3);
  ASSERT_EQ(run_->state().pins().size(), 1u);
  EXPECT_TRUE(run_->state().pins().at("final").pin_set().pin().checkpoint());
  EXPECT_EQ(run_->state().pins().at("final").pin_set().pin().cut(0).version(),
            3);
  EXPECT_EQ(run_->state().merged_token_count(), 3 * 2 * 80);
  run_->CheckAllDecided();
}

TEST_F(RunMachineTest, CountsATokenOnceHoweverManyFragmentsItTrained) {
  Start(SimpleSpec(3));
  const auto tokens = [this] { return run_->state().merged_token_count(); };
  const int64_t expected[] = {53, 106, 160};
  for (int32_t f = 0; f < 3; ++f) {
    for (const char* id : {"i0", "i1"}) {
      for (int32_t shard = 0; shard < 2; ++shard) run_->Push(id, f, shard);
    }
    run_->FollowPlans();
    ASSERT_EQ(Version(f), 1);
    // Thirds of 2 x 80 tokens. Only the sum is rounded down.
    EXPECT_EQ(tokens(), expected[f]);
  }
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(tokens(), 3 * 2 * 80);
  RunState restored;
  ASSERT_TRUE(
      restored.Restore(run_->state().ToSnapshot(), run_->state().revision())
          .ok());
  EXPECT_EQ(restored.merged_token_count(), tokens());
}

TEST_F(RunMachineTest, CountsWhatIsMergedOfAStreamingRunByFragments) {
  v1::RunSpec spec = SimpleSpec(2);
  spec.mutable_schedule()->set_fragment_schedule(
      v1::FRAGMENT_SCHEDULE_STAGGERED);
  Start(spec);
  for (const char* id : {"i0", "i1"}) {
    for (int shard = 0; shard < 2; ++shard) run_->Push(id, 0, shard);
  }
  run_->FollowPlans();
  ASSERT_EQ(Version(0), 1);
  ASSERT_EQ(Version(1), 0);
  // Fragment 0 was pushed after 2 of 4 steps of 20 tokens.
  EXPECT_EQ(run_->state().merged_token_count(), 2 * 2 * 20 / 2);
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  // It ends with 2 + 4 + 4 steps of one fragment and 4 + 4 + 4 of the other.
  EXPECT_EQ(run_->state().merged_token_count(), 2 * (10 + 12) * 20 / 2);
}

TEST_F(RunMachineTest, OpensAllFragmentsOfAVersionTogether) {
  Start(SimpleSpec(3));
  for (int f = 0; f < 3; ++f) EXPECT_EQ(Phase(f), RoundPhase::kOpen);
  for (const char* id : {"i0", "i1"}) {
    run_->Push(id, 0, 0);
    run_->Push(id, 0, 1);
  }
  run_->FollowPlans();
  EXPECT_EQ(Version(0), 1);
  EXPECT_EQ(Phase(0), RoundPhase::kIdle);  // Waits for the others.
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->state().commit_seq(), 9);
}

TEST_F(RunMachineTest, SealsOnlyWhatAllShardsHave) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->Push("i1", 0, 0);
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Push("i1", 0, 1);
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(RunMachineTest, WhatIsOfNobodyOrOfAnotherRunEpochIsNotReceived) {
  const std::function<void(v1::ContributionKey&)> changes[] = {
      [](v1::ContributionKey& key) { key.set_run_epoch(0); },
      [](v1::ContributionKey& key) { key.set_run_epoch(2); },
      [](v1::ContributionKey& key) { key.set_seq(0); },
      [](v1::ContributionKey& key) { key.set_seq(kSeqMax + 1); },
      [](v1::ContributionKey& key) { key.set_slot(-1); },
      [](v1::ContributionKey& key) { key.set_slot(2); },
      [](v1::ContributionKey& key) { key.set_fragment(1); },
  };
  for (const auto& change : changes) {
    Start(SimpleSpec());
    run_->alter_report = [&](v1::ShardReport& report) {
      for (v1::StoredContribution& stored : *report.mutable_stored()) {
        v1::ContributionKey& key = *stored.mutable_info()->mutable_key();
        if (key.slot() == 1) change(key);
      }
    };
    run_->PushAll("i0");
    run_->PushAll("i1");
    EXPECT_EQ(Phase(), RoundPhase::kOpen);
    EXPECT_EQ(run_->machine().observed().index.Seen(0).size(), 1u);
    run_->alter_report = nullptr;
    run_->FollowPlans();
    EXPECT_EQ(Phase(), RoundPhase::kSealed);
  }
}

TEST_F(RunMachineTest, StepsThatOneIslandClaimsAheadOfItsPlanGiveNoWeight) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_max_ahead_steps(40);
  for (const bool all_are_ahead : {false, true}) {
    Start(spec);
    run_->alter_report = [&](v1::ShardReport& report) {
      for (v1::StoredContribution& stored : *report.mutable_stored()) {
        v1::ContributionInfo& info = *stored.mutable_info();
        if (info.key().slot() != 1 && !all_are_ahead) continue;
        info.set_step_count(4 + 40);
        info.set_token_count((4 + 40) * 20);
      }
    };
    run_->PushAll("i0");
    run_->PushAll("i1");
    ASSERT_EQ(Phase(), RoundPhase::kSealed);
    const v1::Seal& seal = run_->fragment(0).sealed.seal();
    ASSERT_EQ(seal.contributions_size(), 2);
    for (const v1::SealedContribution& contribution : seal.contributions()) {
      EXPECT_EQ(contribution.weight(), 0.5f);
      EXPECT_EQ(contribution.token_count(), (all_are_ahead ? 44 : 4) * 20);
    }
    run_->alter_report = nullptr;
  }
}

TEST_F(RunMachineTest, WhatIsNotTheSameOnAllShardsIsRejected) {
  Start(SimpleSpec());
  run_->alter_report = [](v1::ShardReport& report) {
    if (report.shard() != 1) return;
    for (v1::StoredContribution& stored : *report.mutable_stored()) {
      if (stored.info().key().slot() != 1) continue;
      stored.mutable_info()->mutable_digest()->set_high(1);
    }
  };
  run_->PushAll("i0");
  run_->PushAll("i1");
  EXPECT_NE(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
}

TEST_F(RunMachineTest, WhatClaimsNoStepsIsRejected) {
  Start(SimpleSpec());
  run_->alter_report = [](v1::ShardReport& report) {
    for (v1::StoredContribution& stored : *report.mutable_stored()) {
      if (stored.info().key().slot() != 1) continue;
      stored.mutable_info()->set_step_count(0);
    }
  };
  run_->PushAll("i0");
  run_->PushAll("i1");
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
}

// Its staleness would be negative.
TEST_F(RunMachineTest, WhatIsFromAVersionThatThereIsNotIsRejected) {
  Start(AsyncSpec());
  run_->alter_report = [](v1::ShardReport& report) {
    for (v1::StoredContribution& stored : *report.mutable_stored()) {
      stored.mutable_info()->set_anchor_version(5);
    }
  };
  run_->PushAll("i0");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_REJECTED);
}

TEST_F(RunMachineTest, AwaitsAStrictMemberThatRestarts) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Join("i1").ok());  // Restarted, and still ready.
  EXPECT_TRUE(run_->state().FindMember("i1")->ready());
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->PushAll("i1");
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(RunMachineTest, ReadsNobodyElsesWordForAnIsland) {
  Start(SimpleSpec());
  const IslandCredentials old = run_->Credentials("i0");
  IslandCredentials wrong = old;
  wrong.session_secret = "guess";
  EXPECT_EQ(run_->machine().CheckIsland(wrong).code(),
            absl::StatusCode::kUnauthenticated);
  wrong = old;
  wrong.island_epoch += 1;
  EXPECT_EQ(run_->machine().CheckIsland(wrong).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(run_->machine().CheckIsland(old).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(run_->state().FindMember("i0")->record.slot(), 0);
  EXPECT_EQ(run_->machine().CheckIsland({"nobody", 1, ""}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RunMachineTest, NobodyIsReadyAtACutThatThereIsNot) {
  Start(SimpleSpec());
  for (const int64_t commit_seq : {-1, 1}) {
    EXPECT_EQ(run_->machine()
                  .Step(event::Ready{run_->Credentials("i0"), commit_seq},
                        run_->now())
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << commit_seq;
  }
  EXPECT_TRUE(run_->Ready("i0").ok());
}

TEST_F(RunMachineTest, GoesOnWithoutALostIslandIfEnoughRemain) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_min_quorum(1);
  Start(spec);
  run_->PushAll("i0");
  run_->Pass(absl::Seconds(29), {"i1"});
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Pass(absl::Seconds(2), {"i1"});
  EXPECT_EQ(run_->state().FindMember("i1")->record.state(),
            v1::ISLAND_STATE_LOST);
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->Heartbeat("i1").code(),
            absl::StatusCode::kFailedPrecondition);
  run_->FollowPlans();
  EXPECT_THAT(run_->Expected(), ElementsAre(0));
}

TEST_F(RunMachineTest, KeepsWhatALostIslandHadPushed) {
  Start(SimpleSpec());
  run_->PushAll("i1");
  run_->Pass(absl::Seconds(31), {"i1"});
  run_->PushAll("i0");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->fragment(0).sealed.seal().contributions_size(), 2);
}

TEST_F(RunMachineTest, AsksOtherIslandsWhenNoneOfTheExpectedIsLeft) {
  Start(SimpleSpec());
  JoinReady("i2");
  JoinReady("i3");
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Leave("i1").ok());
  // i0's contribution outlives the attempt.
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 2, 3));
  EXPECT_EQ(run_->fragment(0).attempt, 1);
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  run_->CheckAllDecided();
}

TEST_F(RunMachineTest, WaitsForAStrictQuorumThatIsGone) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Leave("i1").ok());
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i1"));
  ASSERT_TRUE(run_->Join("i1").ok());
  run_->PushAll("i1");
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(RunMachineTest, SealsAnElasticRoundAfterTheGraceWindow) {
  Start(ElasticSpec());
  run_->Train("i1", 0);
  run_->PushAll("i0");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(run_->machine().NextTimer(), run_->now() + absl::Seconds(1));
  run_->Pass(absl::Seconds(0.5));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Pass(absl::Seconds(0.5));
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  run_->PushAll("i1");
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_LATE);
}

TEST_F(RunMachineTest, DecidesAPartialContributionWithTheCommit) {
  Start(ElasticSpec());
  run_->Push("i1", 0, 0);  // Not on every shard.
  run_->PushAll("i0");
  run_->Pass(absl::Seconds(1));
  run_->FollowPlans();
  ASSERT_EQ(Version(), 1);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_LATE);
}

TEST_F(RunMachineTest, CallsWhatMissedOneCommitLateAndTwoStale) {
  for (int missed = 1; missed <= 2; ++missed) {
    v1::RunSpec spec = ElasticSpec();
    spec.mutable_schedule()->set_round_count(9);
    Start(spec);
    ASSERT_TRUE(run_->Train("i1", 0));
    for (int round = 0; round < missed; ++round) {
      run_->PushAll("i0");
      run_->Pass(absl::Seconds(1));
      run_->FollowPlans();
    }
    ASSERT_EQ(Version(), missed);
    run_->PushLate("i1", 0);
    EXPECT_EQ(run_->FindOutcome("i1"),
              missed == 1 ? v1::OUTCOME_LATE : v1::OUTCOME_STALE);
    run_->CheckLog();
  }
}

TEST_F(RunMachineTest, SealsAtTheDeadlineWithAQuorum) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->mutable_grace_window()->set_seconds(1000);
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(10);
  Start(spec);
  run_->Pass(absl::Seconds(11));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);  // Without a quorum it re-arms.
  run_->PushAll("i0");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Pass(absl::Seconds(10));
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

// The events of one batch have one time. A later one may be the heartbeat.
TEST_F(RunMachineTest, NoLeaseEndsBeforeTheTick) {
  Start(SimpleSpec());
  RunMachine& machine = run_->machine();
  const absl::Time later = run_->now() + absl::Seconds(31);
  ASSERT_TRUE(
      machine.Step(event::ServerChanged{"server-0", false}, later).ok());
  ASSERT_TRUE(
      machine.Step(event::Heartbeat{run_->Credentials("i0")}, later).ok());
  EXPECT_TRUE(run_->state().FindMember("i1")->present());
  ASSERT_TRUE(machine.Step(event::Tick{}, later).ok());
  EXPECT_TRUE(run_->state().FindMember("i0")->present());
  EXPECT_FALSE(run_->state().FindMember("i1")->present());
  run_->Flush();
}

TEST_F(RunMachineTest, NoGraceWindowEndsBeforeTheTick) {
  Start(ElasticSpec());
  run_->Train("i1", 0);
  run_->PushAll("i0");
  RunMachine& machine = run_->machine();
  ASSERT_TRUE(machine
                  .Step(event::ServerChanged{"server-0", false},
                        run_->now() + absl::Seconds(2))
                  .ok());
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->PushAll("i1");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->fragment(0).sealed.seal().contributions_size(), 2);
}

TEST_F(RunMachineTest, AStallMakesLeasesAndWindowsLonger) {
  Start(ElasticSpec());
  run_->PushAll("i0");  // The quorum.
  RunMachine& machine = run_->machine();
  v1::ExportCheckpointRequest request;
  request.set_pin_id("mine");
  request.mutable_lease_duration()->set_seconds(5);
  ASSERT_TRUE(machine.Step(event::Export{request}, run_->now()).ok());
  const absl::Time start = run_->now();
  const auto tick_after = [&](double seconds) {
    ASSERT_TRUE(
        machine.Step(event::Tick{}, start + absl::Seconds(seconds)).ok());
  };
  machine.AddStall(absl::Seconds(100));
  EXPECT_EQ(machine.NextTimer(), start + absl::Seconds(101));
  tick_after(100.5);
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  tick_after(101);
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->state().pins().size(), 1u);
  tick_after(105);
  EXPECT_EQ(run_->state().pins().size(), 0u);
  tick_after(129);
  EXPECT_TRUE(run_->state().FindMember("i0")->present());
  tick_after(130);
  EXPECT_FALSE(run_->state().FindMember("i0")->present());
  run_->Flush();
}

TEST_F(RunMachineTest, PausesWhenRefusalsLeaveTooFew) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->RefusePush("i1", 0, 1);
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("not finite"));
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
  run_->FollowPlans();
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  run_->CheckAllDecided();
}

// Records and snapshots keep the reason forever.
TEST_F(RunMachineTest, TakesOfAReasonOnlySoMuch) {
  Start(SimpleSpec());
  run_->alter_report = [](v1::ShardReport& report) {
    for (v1::RefusedContribution& refused : *report.mutable_refused()) {
      refused.set_reason(std::string(100'000, 'x'));
    }
  };
  run_->PushAll("i0");
  run_->RefusePush("i1", 0, 1);
  ASSERT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
  EXPECT_LT(run_->log().back().ByteSizeLong(), 1000);
  EXPECT_LT(run_->state().ToSnapshot().ByteSizeLong(), 10'000);
}

// The next round is open by then and still awaits the island.
TEST_F(RunMachineTest, ARefusalThatComesLateIsOfItsOwnRound) {
  Start(ElasticSpec());
  ASSERT_TRUE(run_->Train("i1", 0));
  run_->PushAll("i0");
  run_->Pass(absl::Seconds(1));
  run_->FollowPlans();
  ASSERT_EQ(Version(), 1);
  ASSERT_TRUE(run_->RefuseLate("i1", 0, 0));
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
  run_->PushAll("i0");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->PushAll("i1");
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(run_->fragment(0).sealed.seal().contributions_size(), 2);
}

// Otherwise no contribution would be left, and the run would stop.
TEST_F(RunMachineTest, ARefusalThatComesLatePausesNothing) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_min_quorum(1);
  Start(spec);
  ASSERT_TRUE(run_->Train("i1", 0));
  run_->PushAll("i0");
  run_->Pass(absl::Seconds(31), {"i1"});
  run_->FollowPlans();
  ASSERT_EQ(Version(), 1);
  JoinReady("i1");
  ASSERT_TRUE(run_->Leave("i0").ok());
  ASSERT_THAT(run_->Expected(), ElementsAre(1));
  ASSERT_TRUE(run_->RefuseLate("i1", 0, 0));
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  run_->PushAll("i1");
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(RunMachineTest, AbortsAndPausesWhenAMergeIsNotFinite) {
  Start(SimpleSpec());
  run_->finite = false;
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_EQ(Version(), 0);
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_DROPPED);
  run_->finite = true;
  run_->FollowPlans();
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  EXPECT_EQ(run_->fragment(0).open.attempt(), 1);
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
}

TEST_F(RunMachineTest, CommitsASealedRoundWhilePausedAndOpensNone) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->PushAll("i1");
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  run_->FollowPlans();
  EXPECT_EQ(Version(), 1);
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
}

TEST_F(RunMachineTest, SealsNothingWhilePaused) {
  Start(SimpleSpec());
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  run_->PushAll("i0");
  run_->PushAll("i1");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(RunMachineTest, CancelsAtAnyPointOfARound) {
  for (int point = 0; point < 4; ++point) {
    Start(SimpleSpec(2));
    if (point >= 1) run_->Push("i0", 0, 0);
    if (point >= 2) {
      run_->PushAll("i0");
      run_->PushAll("i1");
    }
    if (point >= 3) run_->FollowPlan(0);
    ASSERT_TRUE(
        run_->machine().Step(event::Cancel{}, run_->now()).status().ok());
    EXPECT_TRUE(
        run_->machine().Step(event::Cancel{}, run_->now()).status().ok());
    EXPECT_EQ(
        run_->machine().Step(event::Resume{}, run_->now()).status().code(),
        absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(State(), v1::RUN_STATE_CANCELLED);
    run_->FollowPlans();
    run_->CheckAllDecided();
    if (point >= 1) {
      EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_CANCELLED);
    }
    EXPECT_EQ(run_->Join("i9").code(), absl::StatusCode::kFailedPrecondition);
    run_->CheckLog();
  }
}

TEST_F(RunMachineTest, MakesNoCommitFartherAheadThanTheSlowestShard) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(40);
  Start(spec);
  for (int round = 0; round < 40; ++round) {
    run_->PushAll("i0");
    run_->PushAll("i1");
    run_->FollowPlan(0);
    run_->FollowPlan(1, /*persist=*/false);
    run_->FollowPlan(0);
  }
  EXPECT_EQ(run_->state().commit_seq(), kCommitsAheadMax);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("persist"));
  run_->FollowPlan(1);
  EXPECT_EQ(run_->state().commit_seq(), kCommitsAheadMax + 1);
}

TEST_F(RunMachineTest, LeasesADataShardToOneIslandAlone) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_data()->set_data_shard_count(2);
  Start(spec);
  EXPECT_EQ(run_->Join("i2").code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(run_->Leave("i0").ok());
  ASSERT_TRUE(run_->Join("i2").ok());
  EXPECT_EQ(run_->state().FindMember("i2")->record.data_shard(), 0);
  EXPECT_EQ(run_->Join("i0").code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RunMachineTest, LetsOthersReadALostIslandsDataInElasticRuns) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_data()->set_data_shard_count(2);
  spec.mutable_schedule()->set_round_count(9);
  Start(spec);
  ASSERT_TRUE(run_->Leave("i1").ok());
  std::set<int32_t> read;
  for (int round = 0; round < 4; ++round) {
    for (const v1::SlotPlan& plan : run_->fragment(0).open.slots()) {
      if (plan.slot() == 0) read.insert(plan.data_shard());
    }
    run_->PushAll("i0");
    run_->FollowPlans();
  }
  EXPECT_THAT(read, ElementsAre(0, 1));
  // Each shard continues where its last merged contribution ended.
  EXPECT_GE(run_->state().DataPosition(0, 0), 16);
  EXPECT_GE(run_->state().DataPosition(1, 0), 8);
}

// The next reader of the data shard continues there.
TEST_F(RunMachineTest, AClaimMovesTheDataOnByWhatThePlanLetItReadAtMost) {
  for (const int64_t more : {int64_t{5}, int64_t{1} << 52}) {
    Start(SimpleSpec());
    run_->claims_windows_more = more;
    run_->PushAll("i0");
    run_->claims_windows_more = 0;
    run_->PushAll("i1");
    run_->FollowPlans();
    for (const v1::SlotPlan& plan : run_->fragment(0).open.slots()) {
      EXPECT_EQ(plan.data_position(), 8) << plan.slot() << " " << more;
    }
  }
}

TEST_F(RunMachineTest, ARoundHasTheMeansOfTheTrainersOwnNumbers) {
  Start(ElasticSpec());
  const auto report = [&](const std::string& id, double accuracy,
                          int64_t token_count) {
    v1::ReportProgressRequest progress;
    (*progress.mutable_metrics())["accuracy"] = accuracy;
    progress.set_metrics_token_count(token_count);
    return run_->machine()
        .Step(event::Progress{run_->Credentials(id), progress}, run_->now())
        .status();
  };
  ASSERT_TRUE(report("i0", 0.5, 10).ok());
  ASSERT_TRUE(report("i0", 1.0, 10).ok());
  ASSERT_TRUE(report("i1", 0.25, 60).ok());
  const auto commit = [&] {
    run_->PushAll("i0");
    run_->PushAll("i1");
    run_->FollowPlans();
    v1::Round newest;
    for (const storage::v1::Record& record : run_->log()) {
      if (record.has_round_committed()) {
        newest = record.round_committed().round();
      }
    }
    return newest;
  };
  EXPECT_NEAR(commit().metrics().at("accuracy"), (15 + 15) / 80.0, 1e-12);
  // The next round's begin anew.
  EXPECT_TRUE(commit().metrics().empty());
  EXPECT_FALSE(report("i0", INFINITY, 1).ok());
  EXPECT_FALSE(report("i0", 1, -1).ok());
}

TEST_F(RunMachineTest, WeighsByTheTokensThatThePlanAllows) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_inner_step_count(10);
  Start(spec);
  run_->PushAll("i0");
  run_->PushAll("i1");
  // Both claim 200 tokens: ten steps of 2 x 10 tokens.
  const v1::Seal& seal = run_->fragment(0).sealed.seal();
  EXPECT_EQ(seal.contributions(0).token_count(), 200);
  EXPECT_FLOAT_EQ(seal.contributions(0).weight(), 0.5f);
}

TEST_F(RunMachineTest, AsksASampleOfTheIslands) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_sample_fraction(0.5);
  spec.mutable_schedule()->set_island_count_min(4);
  spec.mutable_schedule()->set_round_count(20);
  Start(spec, 4);
  std::set<std::vector<int32_t>> samples;
  while (State() == v1::RUN_STATE_ACTIVE) {
    EXPECT_EQ(run_->Expected().size(), 2u);
    samples.insert(run_->Expected());
    const int64_t version = Version();
    for (int i = 0; i < 4; ++i) run_->PushAll("i" + std::to_string(i));
    run_->FollowPlans();
    ASSERT_EQ(Version(), version + 1);
  }
  EXPECT_GT(samples.size(), 2u);
}

TEST_F(RunMachineTest, PinsACutUntilItsLeaseEnds) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  v1::ExportCheckpointRequest request;
  request.set_pin_id("mine");
  request.mutable_lease_duration()->set_seconds(5);
  auto pinned = run_->machine().Step(event::Export{request}, run_->now());
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->exported.pin().cut(0).version(), 1);
  EXPECT_EQ(pinned->exported.pin().commit_seq(), 2);
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  pinned = run_->machine().Step(event::Export{request}, run_->now());
  EXPECT_EQ(pinned->exported.pin().cut(0).version(), 1);  // The same cut.
  run_->Pass(absl::Seconds(4));
  EXPECT_EQ(run_->state().pins().size(), 1u);
  run_->Restart();  // The lease starts anew.
  run_->Pass(absl::Seconds(4));
  EXPECT_EQ(run_->state().pins().size(), 1u);
  run_->Pass(absl::Seconds(2));
  EXPECT_EQ(run_->state().pins().size(), 0u);
}

// Bytes of a SimpleSpec round: two contributions, with a page on two shards.
int64_t RoundBytes(const RunState& state) {
  return 2 * (4 * state.layout().element_count() + 2 * 4096);
}

TEST_F(RunMachineTest, APinKeepsContributionsUpToItsBytes) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(5);
  Start(spec);
  v1::ExportCheckpointRequest request;
  request.set_pin_id("audit");
  request.mutable_lease_duration()->set_seconds(3600);
  const int64_t bytes = RoundBytes(run_->state());
  request.set_keep_bytes_max(3 * bytes - 1);
  ASSERT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
  const auto pin = [&] {
    return run_->state().pins().at("audit").pin_set().pin();
  };
  for (int round = 1; round <= 4; ++round) {
    run_->PushAll("i0");
    run_->PushAll("i1");
    run_->FollowPlans();
    ASSERT_EQ(Version(), round);
    EXPECT_EQ(pin().kept_bytes(), std::min(round, 2) * bytes);
    // The first commit over the budget ends the collection for good.
    EXPECT_EQ(pin().keep_end(), round < 3 ? 0 : 3);
  }
  run_->Restart();
  EXPECT_EQ(pin().keep_end(), 3);
  run_->Restart(run_->state().revision());
  EXPECT_EQ(pin().keep_end(), 3);
  EXPECT_EQ(pin().kept_bytes(), 2 * bytes);
}

TEST_F(RunMachineTest, WhatAPinKeepsIsSaidWhenItIsMade) {
  Start(SimpleSpec());
  v1::ExportCheckpointRequest request;
  request.set_pin_id("audit");
  request.set_keep_bytes_max(-1);
  EXPECT_EQ(
      run_->machine().Step(event::Export{request}, run_->now()).status().code(),
      absl::StatusCode::kInvalidArgument);
  request.set_keep_bytes_max(1000);
  ASSERT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
  request.set_keep_bytes_max(2000);
  EXPECT_EQ(
      run_->machine().Step(event::Export{request}, run_->now()).status().code(),
      absl::StatusCode::kFailedPrecondition);
  // A request without keep_bytes_max renews it too.
  request.set_keep_bytes_max(0);
  request.mutable_lease_duration()->set_seconds(7200);
  const auto renewed =
      run_->machine().Step(event::Export{request}, run_->now());
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(renewed->exported.pin().keep_bytes_max(), 1000);
  // A reader with a shorter lease does not shorten it.
  request.mutable_lease_duration()->set_seconds(60);
  ASSERT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
  EXPECT_EQ(
      run_->state().pins().at("audit").pin_set().lease_duration().seconds(),
      7200);
}

TEST_F(RunMachineTest, ThereIsNothingToKeepAtLevelIsland) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_durability(v1::DURABILITY_ISLAND);
  Start(spec);
  v1::ExportCheckpointRequest request;
  request.set_pin_id("audit");
  request.set_keep_bytes_max(1000);
  const auto pinned = run_->machine().Step(event::Export{request}, run_->now());
  EXPECT_EQ(pinned.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(pinned.status().message().find("PROCESS or MACHINE"),
            std::string::npos);
}

// Otherwise the newest cut would stand in until the checkpoint replaced it.
TEST_F(RunMachineTest, ACheckpointThatIsNotThereIsNotMade) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_checkpoint_every_round_count(2);
  Start(spec);
  const auto read = [this](const std::string& pin_id) {
    v1::ExportCheckpointRequest request;
    request.set_pin_id(pin_id);
    return run_->machine().Step(event::Export{request}, run_->now());
  };
  for (const char* id : {"round-2", "final"}) {
    EXPECT_TRUE(absl::IsNotFound(read(id).status())) << id;
  }
  EXPECT_TRUE(read("round-two").ok());
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(read("round-2")->exported.pin().cut(0).version(), 2);
  EXPECT_EQ(read("final")->exported.pin().cut(0).version(), 3);
}

TEST_F(RunMachineTest, ReleasesTheCheckpointsOfARunOnlyOnceItHasEnded) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_checkpoint_every_round_count(1);
  Start(spec);
  const auto release = [this](const std::string& pin_id) {
    v1::ExportCheckpointRequest request;
    request.set_pin_id(pin_id);
    request.set_release(true);
    const absl::Status status =
        run_->machine().Step(event::Export{request}, run_->now()).status();
    run_->Flush();
    return status;
  };
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  ASSERT_TRUE(run_->state().pins().contains("round-1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(release("round-1")));
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  for (const char* id : {"round-1", "round-2", "final"}) {
    EXPECT_TRUE(run_->state().pins().contains(id)) << id;
    EXPECT_TRUE(release(id).ok()) << id;
    EXPECT_TRUE(release(id).ok()) << "a repeat";
  }
  EXPECT_TRUE(run_->state().pins().empty());
  EXPECT_TRUE(
      BuildServerRunPlan(run_->state(), run_->machine().observed(), 0)
          .pins()
          .empty());
}

TEST_F(RunMachineTest, BoundsTheLeasesAndReleasesThem) {
  Start(SimpleSpec());
  v1::ExportCheckpointRequest request;
  for (int i = 0; i < kPinLeasesMax; ++i) {
    request.set_pin_id("p" + std::to_string(i));
    ASSERT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
  }
  request.set_pin_id("one-more");
  EXPECT_EQ(
      run_->machine().Step(event::Export{request}, run_->now()).status().code(),
      absl::StatusCode::kResourceExhausted);
  request.set_pin_id("p3");
  request.set_release(true);
  ASSERT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
  request.set_pin_id("one-more");
  request.set_release(false);
  EXPECT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
}

TEST_F(RunMachineTest, KeepsTheNewestCheckpointsAndTheFirstOfTheHour) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(12);
  spec.set_checkpoint_every_round_count(1);
  spec.mutable_checkpoint()->set_keep_count(2);
  Start(spec);
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  std::vector<std::string> ids;
  for (const auto& [id, pin] : run_->state().pins()) ids.push_back(id);
  EXPECT_THAT(ids, ElementsAre("final", "round-1", "round-10", "round-11"));
  run_->CheckLog();
}

TEST_F(RunMachineTest, KeepsACheckpointEverySoManyRounds) {
  v1::RunSpec spec = SimpleSpec(2);
  spec.mutable_schedule()->set_round_count(5);
  spec.set_checkpoint_every_round_count(2);
  Start(spec);
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  std::vector<std::string> ids;
  for (const auto& [id, pin] : run_->state().pins()) ids.push_back(id);
  EXPECT_THAT(ids, ElementsAre("final", "round-2", "round-4"));
  EXPECT_EQ(run_->state().pins().at("round-2").pin_set().pin().cut(1).version(),
            2);
}

// A plan names at most 256.
TEST_F(RunMachineTest, WhatAnEndedRunLeavesOnAShardIsToldUntilNothingIsLeft) {
  Start(SimpleSpec(), 1);
  std::set<int64_t> left;
  for (int64_t seq = 1; seq <= 600; ++seq) left.insert(seq);
  run_->alter_report = [&](v1::ShardReport& report) {
    for (const int64_t seq : left) {
      v1::ContributionInfo& info = *report.add_stored()->mutable_info();
      info.mutable_key()->set_run_epoch(1);
      info.mutable_key()->set_seq(seq);
    }
  };
  run_->FollowPlan(0);
  ASSERT_TRUE(run_->machine().Step(event::Cancel{}, run_->now()).status().ok());
  int told_count = 0;
  while (!left.empty()) {
    // Otherwise nobody would send the plan.
    ASSERT_TRUE(run_->machine().TakePlanChange().servers);
    const v1::ServerRunPlan plan =
        BuildServerRunPlan(run_->state(), run_->machine().observed(), 0);
    for (const v1::ContributionOutcome& outcome : plan.dropped()) {
      left.erase(outcome.key().seq());
    }
    run_->FollowPlan(0);
    ASSERT_LT(++told_count, 10);
  }
  EXPECT_EQ(told_count, 3);
}

TEST_F(RunMachineTest, WaitsForARestartedServersReportBeforeItSeals) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->RestartServer(1);
  run_->Push("i1", 0, 0);
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  run_->Push("i1", 0, 1);  // Its first report has everything.
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
}

TEST_F(RunMachineTest, GivesARestartedIslandSeqsThatItNeverUsed) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  const int64_t before = run_->state().FindMember("i0")->record.next_seq();
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_GT(run_->state().FindMember("i0")->record.next_seq(), before + 1);
}

TEST_F(RunMachineTest, ASeqThatNoIslandReachesIsNotOneThatItUsed) {
  const std::function<void(v1::ShardReport&, int64_t)> lies[] = {
      [](v1::ShardReport& report, int64_t seq) {
        for (v1::StoredContribution& stored : *report.mutable_stored()) {
          stored.mutable_info()->mutable_key()->set_seq(seq);
        }
      },
      [](v1::ShardReport& report, int64_t seq) {
        v1::RefusedContribution& refused = *report.add_refused();
        refused.mutable_key()->set_run_epoch(1);
        refused.mutable_key()->set_seq(seq);
      },
  };
  for (const auto& lie : lies) {
    for (const int64_t seq :
         {kSeqsALifeMax + 2, kSeqMax, kSeqMax + 1, INT64_MAX - 1, INT64_MAX}) {
      Start(SimpleSpec());
      const int64_t before = run_->state().FindMember("i0")->record.next_seq();
      run_->alter_report = [&](v1::ShardReport& report) { lie(report, seq); };
      run_->PushAll("i0");
      ASSERT_TRUE(run_->Join("i0").ok());
      const int64_t after = run_->state().FindMember("i0")->record.next_seq();
      EXPECT_GT(after, before);
      EXPECT_LT(after, before + 1000);
    }
  }
}

// Shards accept no greater seq: the island could never contribute again.
TEST_F(RunMachineTest, AnIslandThatClaimsTheGreatestSeqIsRefusedAndGoesOn) {
  Start(ElasticSpec());
  run_->alter_report = [](v1::ShardReport& report) {
    for (v1::StoredContribution& stored : *report.mutable_stored()) {
      v1::ContributionKey& key = *stored.mutable_info()->mutable_key();
      if (key.slot() == 0) key.set_seq(kSeqMax);
    }
  };
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  ASSERT_EQ(run_->fragment(0).newest.version(), 1);
  v1::ContributionKey key;
  key.set_run_epoch(1);
  key.set_seq(kSeqMax);
  const OutcomeTable& outcomes = run_->state().outcomes();
  EXPECT_EQ(outcomes.Find(key), v1::OUTCOME_REJECTED);
  EXPECT_THAT(outcomes.Newest(0).back().reason(), HasSubstr("seq"));

  run_->alter_report = nullptr;
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_LT(run_->state().FindMember("i0")->record.next_seq(), 1000);
  ASSERT_TRUE(run_->Ready("i0").ok());
  run_->PushAll("i1");
  run_->Pass(absl::Seconds(2));
  run_->FollowPlans();
  ASSERT_THAT(run_->Expected(), ElementsAre(0, 1));
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
}

TEST_F(RunMachineTest, APageOfIslandsAfterTheLastIsEmpty) {
  Start(SimpleSpec());
  v1::ListIslandsRequest request;
  for (const int64_t token : {int64_t{2}, int64_t{3}, INT64_MAX}) {
    request.set_page_token(absl::StrCat(token));
    const absl::StatusOr<ItemsPage> page = PlanIslands(2, request);
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(page->begin, page->end);
    EXPECT_EQ(page->next_page_token, "");
  }
  request.set_page_token("1");
  EXPECT_EQ(PlanIslands(2, request)->end, 2u);
  EXPECT_EQ(BuildIslands(run_->machine()).islands_size(), 2);
}

TEST_F(RunMachineTest, APageOfCheckpointsFollowsOneThatIsGone) {
  const std::vector<std::string> names = {"2 z", "10 a", "10 b"};
  v1::ListCheckpointsRequest request;
  request.set_page_size(1);
  const auto plan = [&](const std::string& token) {
    request.set_page_token(token);
    const absl::StatusOr<ItemsPage> page = PlanCheckpoints(names, request);
    if (!page.ok()) return std::string("refused");
    return absl::StrCat(page->begin, "-", page->end, " ",
                        page->next_page_token);
  };
  EXPECT_EQ(plan(""), "0-1 2 z");
  EXPECT_EQ(plan("2 z"), "1-2 10 a");
  EXPECT_EQ(plan("9 z"), "1-2 10 a");
  EXPECT_EQ(plan("10 aa"), "2-3 ");
  EXPECT_EQ(plan("11 "), "3-3 ");
  EXPECT_EQ(plan("10"), "refused");
  EXPECT_EQ(plan("a b"), "refused");
}

// Each fragment may have an unreported contribution.
TEST_F(RunMachineTest, ANewLifeOfAnIslandLeavesOutASeqAFragment) {
  constexpr int kFragments = 40;
  Start(SimpleSpec(kFragments));
  const int64_t before = run_->state().FindMember("i0")->record.next_seq();
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_GE(run_->state().FindMember("i0")->record.next_seq(),
            before + kFragments);
}

TEST_F(RunMachineTest, GoesOnAfterARestartAtEveryRecord) {
  Start(SimpleSpec(2));
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  const int64_t commit_seq = run_->state().commit_seq();
  // The same run, restarted after every step.
  Start(SimpleSpec(2));
  int64_t revision = -1;
  while (revision != run_->state().revision()) {
    revision = run_->state().revision();
    for (int32_t f = 0; f < 2; ++f) {
      for (int32_t shard = 0; shard < 2; ++shard) {
        for (const char* id : {"i0", "i1"}) {
          run_->Push(id, f, shard);
          run_->Restart();
          run_->FollowPlans();
        }
      }
    }
    for (int32_t shard = 0; shard < 2; ++shard) {
      run_->FollowPlan(shard);
      run_->Restart();
    }
    run_->FollowPlans();
  }
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->state().commit_seq(), commit_seq);
  EXPECT_EQ(run_->state().merged_token_count(), 3 * 2 * 80);
  run_->CheckAllDecided();
}

TEST_F(RunMachineTest, ARunOfManyFragmentsTakesFewerIslands) {
  v1::RunSpec spec = ElasticSpec(kFragmentsMax);
  spec.mutable_data()->set_data_shard_count(256);
  Start(spec, 0);
  const int most = kFragmentsTimesIslandsMax / kFragmentsMax;
  for (int i = 0; i < most; ++i) {
    ASSERT_TRUE(run_->Join("i" + std::to_string(i)).ok());
  }
  const absl::Status full = run_->Join("one-more");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("128 islands"));
  // Members can still rejoin.
  EXPECT_TRUE(run_->Join("i0").ok());
}

TEST_F(RunMachineTest, RefusesProgressThatIsNotANumber) {
  Start(SimpleSpec());
  v1::ReportProgressRequest progress;
  progress.set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(
      run_->machine()
          .Step(event::Progress{run_->Credentials("i0"), progress}, run_->now())
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
}

// Two SHA-256 in hex.
const char kBase[] =
    "1111111111111111111111111111111111111111111111111111111111111111";
const char kOtherBase[] =
    "2222222222222222222222222222222222222222222222222222222222222222";

TEST_F(RunMachineTest, AnIslandWithOtherFrozenParametersIsRefused) {
  run_ = std::make_unique<RunSimulation>(ElasticSpec());
  run_->StartServers();
  run_->frozen_digest = kBase;
  JoinReady("i0");
  JoinReady("i1");
  run_->frozen_digest = kOtherBase;
  const absl::Status refused = run_->Join("i2");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(HasReason(refused, "OTHER_FROZEN")) << refused;
  for (const std::string& part :
       {std::string("i0"), std::string("i2"), std::string(kBase),
        std::string(kOtherBase), std::string("check_frozen=False")}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
  }
  EXPECT_EQ(run_->state().FindMember("i2"), nullptr);
  run_->frozen_digest = "";  // Not compared.
  EXPECT_TRUE(run_->Join("i2").ok());
  run_->frozen_digest = kBase;
  EXPECT_TRUE(run_->Join("i2").ok());
}

TEST_F(RunMachineTest, FrozenParametersOfMergedContributionsStay) {
  run_ = std::make_unique<RunSimulation>(ElasticSpec());
  run_->StartServers();
  run_->frozen_digest = kBase;
  JoinReady("i0");
  JoinReady("i1");
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  ASSERT_EQ(Version(), 1);
  ASSERT_TRUE(run_->Leave("i1").ok());
  ASSERT_TRUE(run_->Leave("i0").ok());
  run_->Restart();
  run_->frozen_digest = kOtherBase;
  for (const char* id : {"i0", "i9"}) {
    EXPECT_TRUE(HasReason(run_->Join(id), "OTHER_FROZEN")) << id;
  }
  // An operator says that the first islands were the wrong ones.
  ASSERT_TRUE(run_->Remove("i0").ok());
  ASSERT_TRUE(run_->Remove("i1").ok());
  EXPECT_TRUE(run_->Join("i9").ok());
}

TEST_F(RunMachineTest, AnIslandMayCorrectItsFrozenParameters) {
  run_ = std::make_unique<RunSimulation>(ElasticSpec());
  run_->StartServers();
  run_->frozen_digest = kBase;
  ASSERT_TRUE(run_->Join("i0").ok());
  run_->frozen_digest = kOtherBase;
  EXPECT_TRUE(run_->Join("i0").ok());
  ASSERT_TRUE(run_->Leave("i0").ok());
  run_->frozen_digest = kBase;
  EXPECT_TRUE(run_->Join("i1").ok());
}

TEST_F(RunMachineTest, AVolunteersFrozenDigestExcludesNoOther) {
  run_ = std::make_unique<RunSimulation>(ElasticSpec());
  run_->StartServers();
  run_->frozen_digest = kOtherBase;
  ASSERT_TRUE(run_->Join("i0", "token").ok());
  run_->frozen_digest = kBase;
  EXPECT_TRUE(run_->Join("i1").ok());
  run_->frozen_digest = kOtherBase;
  EXPECT_TRUE(HasReason(run_->Join("i0", "token"), "OTHER_FROZEN"));
}

TEST_F(RunMachineTest, IslandsThatReadTheSameSamplesAreWarned) {
  Start(ElasticSpec(), 3);
  const auto report = [&](const std::string& id, const std::string& digest) {
    v1::ReportProgressRequest progress;
    progress.set_index_digest(digest);
    run_->machine().TakePlanChange();
    EXPECT_TRUE(
        run_->machine()
            .Step(event::Progress{run_->Credentials(id), progress}, run_->now())
            .ok());
    return run_->machine().TakePlanChange().slots;
  };
  const auto warning = [&](int32_t slot) {
    v1::IslandPlan plan = BuildSharedIslandPlan(
        run_->state(), run_->machine().observed(), *run_);
    AddIsland(run_->state(), run_->machine().observed(), slot, plan);
    return plan.warning();
  };
  EXPECT_THAT(report("i0", kBase), ElementsAre(0));
  EXPECT_THAT(report("i0", kBase), IsEmpty());  // Nothing new.
  EXPECT_THAT(report("i1", kOtherBase), ElementsAre(1));
  EXPECT_THAT(report("i2", ""), IsEmpty());  // It does not tell.
  for (int32_t slot = 0; slot < 3; ++slot) EXPECT_EQ(warning(slot), "");
  EXPECT_THAT(report("i1", kBase), ElementsAre(0, 1));
  EXPECT_THAT(warning(0), HasSubstr("as island i1; their data shards are 0 "
                                    "and 1 of 4"));
  EXPECT_THAT(warning(1), HasSubstr("as island i0"));
  EXPECT_EQ(warning(2), "");
  const v1::GetRunStateResponse shown = BuildRunState(run_->machine(), *run_);
  ASSERT_EQ(shown.warnings_size(), 2);
  EXPECT_EQ(shown.warnings(0).island_id(), "i0");
  EXPECT_EQ(shown.warnings(0).warning(), warning(0));
  EXPECT_EQ(shown.warnings(1).island_id(), "i1");
  // An island that has left reads nothing.
  ASSERT_TRUE(run_->Leave("i1").ok());
  EXPECT_EQ(warning(0), "");
  ASSERT_TRUE(run_->Join("i1").ok());
  EXPECT_EQ(warning(0), "");
  EXPECT_THAT(report("i1", kBase), ElementsAre(0, 1));
  EXPECT_THAT(warning(0), HasSubstr("as island i1"));
  EXPECT_THAT(report("i1", kOtherBase), ElementsAre(0, 1));
  EXPECT_EQ(warning(0), "");
}

TEST_F(RunMachineTest, AnIslandThatAlternatesItsSamplesChangesNoPlanOfOthers) {
  Start(ElasticSpec(), 4);
  const auto report = [&](const std::string& id, const std::string& digest) {
    v1::ReportProgressRequest progress;
    progress.set_index_digest(digest);
    run_->machine().TakePlanChange();
    run_->machine()
        .Step(event::Progress{run_->Credentials(id), progress}, run_->now())
        .IgnoreError();
    return run_->machine().TakePlanChange().slots;
  };
  for (int i = 0; i < 4; ++i) report(absl::StrCat("i", i), kBase);
  // All others name the first one: that costs once.
  EXPECT_THAT(report("i0", kOtherBase), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(report("i0", kBase), ElementsAre(0));
  for (int i = 0; i < 30; ++i) {
    EXPECT_THAT(report("i0", i % 2 == 0 ? kOtherBase : kBase),
                SizeIs(i < 2 ? 1 : 0))
        << i;
  }
  // Once the bound allows a change again, the newest digest is taken.
  run_->Pass(absl::Seconds(10));
  EXPECT_THAT(report("i0", kOtherBase), ElementsAre(0));
  EXPECT_EQ(WarnOfIsland(run_->state(), run_->machine().observed(), 0), "");
  EXPECT_THAT(WarnOfIsland(run_->state(), run_->machine().observed(), 1),
              HasSubstr("as island i2"));
}

TEST_F(RunMachineTest, AnIslandThatJoinsInALoopIsHeldToARate) {
  Start(SimpleSpec());
  int joined = 0;
  absl::Status refused;
  for (int i = 0; i < 100; ++i) {
    const absl::Status status = run_->Join("i1");
    if (status.ok()) {
      ++joined;
    } else {
      refused = status;
    }
  }
  EXPECT_EQ(joined, 9);  // And once at the start.
  EXPECT_TRUE(HasReason(refused, "TOO_MANY_CALLS")) << refused;
  EXPECT_TRUE(IsAway(refused));
  EXPECT_EQ(GetRetryDelay(refused), absl::Seconds(2));
  EXPECT_EQ(run_->machine().observed().refused_call_count, 91);
  // Others are not refused, and a refusal does not end the membership.
  EXPECT_TRUE(run_->Join("i0").ok());
  EXPECT_TRUE(run_->Heartbeat("i1").ok());
  // A program that is restarted in a loop of a few seconds gets in each time.
  for (int i = 0; i < 20; ++i) {
    run_->Pass(absl::Seconds(2));
    EXPECT_TRUE(run_->Join("i1").ok()) << i;
  }
}

TEST_F(RunMachineTest, AnIslandThatReportsInALoopIsHeldToARate) {
  Start(SimpleSpec());
  // Each of these would send a plan to everybody.
  v1::ReportProgressRequest request;
  const auto report = [&](int i) {
    request.set_index_digest(std::string(64, static_cast<char>('a' + i % 2)));
    return run_->machine()
        .Step(event::Progress{run_->Credentials("i1"), request}, run_->now())
        .status();
  };
  int count = 0;
  for (int i = 0; i < 1000; ++i) count += report(i).ok() ? 1 : 0;
  EXPECT_EQ(count, 63);  // And ReportReady at the start.
  EXPECT_TRUE(HasReason(report(0), "TOO_MANY_CALLS"));
  EXPECT_TRUE(HasReason(run_->Ready("i1"), "TOO_MANY_CALLS"));
  EXPECT_TRUE(run_->Heartbeat("i1").ok());
  for (int i = 0; i < 100; ++i) {
    run_->Pass(absl::Seconds(1));
    EXPECT_TRUE(report(i).ok()) << i;
  }
  // A leave is not asked again: rounds would wait for the lease's end.
  for (int i = 0; i < 1000; ++i) report(i).IgnoreError();
  EXPECT_TRUE(run_->Leave("i1").ok());
  EXPECT_FALSE(run_->machine().state().FindMember("i1")->present());
}

TEST_F(RunMachineTest, ASpecIsEncodedOnceAndMergesWithTheRestOfAnAnswer) {
  Start(SimpleSpec());
  RunMachine& machine = run_->machine();
  const auto part = EncodeSpecPart(machine);
  run_->Settle();
  EXPECT_EQ(EncodeSpecPart(machine), part);
  v1::GetRunResponse answer;
  ASSERT_TRUE(answer.ParseFromString(
      *part + BuildRunAnswer(machine, *run_).SerializeAsString()));
  EXPECT_GT(answer.run().spec().layout().tensors_size(), 0);
  EXPECT_EQ(answer.run().DebugString(),
            BuildRun(machine, /*with_tensors=*/true).DebugString());
  EXPECT_EQ(answer.cut_size(), 1);
  EXPECT_EQ(answer.shards_size(), 2);
}

TEST_F(RunMachineTest, PhasesOfASynchronizationAreTakenOnce) {
  Start(SimpleSpec());
  v1::ReportProgressRequest request;
  for (const int64_t seq : {int64_t{1}, kSeqMax}) {
    v1::SyncPhases& sync = *request.add_sync_phases();
    sync.set_seq(seq);
    sync.add_phases()->set_phase(v1::PHASE_TRAIN);
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(run_->machine()
                    .Step(event::Progress{run_->Credentials("i1"), request},
                          run_->now())
                    .ok());
  }
  // No life of an island has the other seq.
  const std::vector<v1::SyncPhases> taken = run_->machine().TakePhases();
  ASSERT_EQ(taken.size(), 1);
  EXPECT_EQ(taken[0].seq(), 1);
  EXPECT_TRUE(run_->machine().TakePhases().empty());
  const ObservedMember& member = run_->machine().observed().members[1];
  EXPECT_EQ(member.phases.Find(1).size(), 1);
  EXPECT_TRUE(member.phases.Find(kSeqMax).empty());
  EXPECT_TRUE(member.progress->sync_phases().empty());
}

}  // namespace
}  // namespace atl::coordinator
