#include "coordinator/core/rounds/recalls.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecallsTest : public RunSimulationTest {
 protected:
  // Both islands push to all shards, and the round is sealed.
  void StartSealed(const v1::RunSpec& spec) {
    Start(spec);
    run_->PushAll("i0");
    run_->PushAll("i1");
    ASSERT_EQ(Phase(), RoundPhase::kSealed);
  }
  int64_t Version() const { return run_->fragment(0).newest.version(); }
  int64_t Attempt() const { return run_->fragment(0).attempt; }
  v1::RunState State() const { return run_->state().state(); }
  // The seqs that the island must push again.
  std::vector<int64_t> Asked(const std::string& id) {
    std::vector<int64_t> seqs;
    for (const auto& key : run_->NeedsRepush(id)) seqs.push_back(key.seq());
    return seqs;
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(RecallsTest, ASealedContributionThatAShardLostIsPushedAgainAndMerged) {
  StartSealed(SimpleSpec());
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  EXPECT_THAT(Asked("i0"), ElementsAre());
  EXPECT_THAT(Asked("i1"), ElementsAre(1));
  run_->FollowPlans();
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("shard 1"));
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i1"));
  ASSERT_TRUE(run_->PushAgain("i1"));
  EXPECT_THAT(Asked("i1"), ElementsAre());
  run_->FollowPlans();
  EXPECT_EQ(Version(), 1);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
}

TEST_F(RecallsTest, AReceivedOneIsNoLongerReceivedAndAskedFor) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  ASSERT_TRUE(run_->Lose("i0", 0, 0));
  EXPECT_THAT(Asked("i0"), ElementsAre(1));
  run_->PushAll("i1");
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  ASSERT_TRUE(run_->PushAgain("i0"));
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_THAT(Asked("i0"), ElementsAre());
}

TEST_F(RecallsTest, WhatHasNotComeYetIsNotAskedForAgain) {
  Start(SimpleSpec());
  run_->Push("i0", 0, 0);  // Still being pushed to shard 1.
  EXPECT_THAT(Asked("i0"), ElementsAre());
}

TEST_F(RecallsTest, WhatIsOfNobodyOrCannotBeMergedIsNotNoted) {
  using Info = v1::ContributionInfo;
  const std::function<void(Info&)> changes[] = {
      [](Info& info) { info.mutable_key()->set_run_epoch(0); },
      [](Info& info) { info.mutable_key()->set_slot(-1); },
      [](Info& info) { info.mutable_key()->set_slot(2); },
      [](Info& info) { info.mutable_key()->set_fragment(1); },
      [](Info& info) { info.mutable_key()->set_seq(0); },
      [](Info& info) { info.mutable_key()->set_seq(kSeqMax + 1); },
      [](Info& info) { info.set_anchor_version(INT64_MIN); },
      [](Info& info) { info.set_anchor_version(-1); },
      [](Info& info) { info.set_anchor_version(1); },
      [](Info& info) { info.set_anchor_version(INT64_MAX); },
  };
  for (const auto& change : changes) {
    Start(SimpleSpec());
    run_->alter_report = [&](v1::ShardReport& report) {
      for (v1::StoredContribution& stored : *report.mutable_stored()) {
        change(*stored.mutable_info());
      }
    };
    run_->PushAll("i0");
    for (const auto& [place, known] :
         run_->machine().observed().index.fragments[0].known) {
      for (const ShardPart& part : known.parts) EXPECT_EQ(part.had, nullptr);
    }
    // Nor does its absence later.
    run_->alter_report = [](v1::ShardReport& report) { report.clear_stored(); };
    run_->FollowPlans();
    EXPECT_TRUE(run_->machine().observed().recalls.empty());
  }
}

TEST_F(RecallsTest, AShardThatHasNotReportedHasLostNothing) {
  StartSealed(SimpleSpec());
  run_->RestartServer(1);
  EXPECT_THAT(Asked("i0"), ElementsAre());
  ASSERT_TRUE(run_->Lose("i0", 0, 1));
  EXPECT_THAT(Asked("i0"), ElementsAre(1));
}

TEST_F(RecallsTest, ALossBeforeTheSealIsSeenOverARestartOfTheServer) {
  Start(SimpleSpec());
  run_->PushAll("i0");
  run_->RestartServer(1);
  ASSERT_TRUE(run_->Lose("i0", 0, 1));
  EXPECT_THAT(Asked("i0"), ElementsAre(1));
}

TEST_F(RecallsTest, ALossAfterTheSealIsSeenOverARestartOfTheCoordinator) {
  StartSealed(SimpleSpec());
  run_->Restart();
  EXPECT_THAT(Asked("i1"), ElementsAre());
  run_->FollowPlan(0);
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  EXPECT_THAT(Asked("i1"), ElementsAre(1));
}

TEST_F(RecallsTest, WhatAShardHasMergedItNeedsNoMore) {
  StartSealed(SimpleSpec());
  run_->FollowPlan(1);
  ASSERT_TRUE(run_->Lose("i0", 0, 1, /*keeps_merges=*/true));
  EXPECT_THAT(Asked("i0"), ElementsAre());
  run_->FollowPlan(0);
  EXPECT_EQ(Version(), 1);
}

TEST_F(RecallsTest, AnOwnerThatLeftIsNotAwaited) {
  StartSealed(ElasticSpec());
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  ASSERT_TRUE(run_->Leave("i1").ok());
  EXPECT_EQ(Attempt(), 1);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  // The other island's contribution counts in the next attempt.
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  run_->FollowPlans();
  EXPECT_EQ(Version(), 1);
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
}

TEST_F(RecallsTest, AnOwnerWhoseLeaseEndsIsNotAwaited) {
  StartSealed(ElasticSpec());
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  run_->Pass(absl::Seconds(31), {"i1"});
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  run_->FollowPlans();
  EXPECT_EQ(Version(), 1);
}

TEST_F(RecallsTest, AnOwnerThatDoesNotPushAgainIsAwaitedForABoundedTime) {
  StartSealed(SimpleSpec());
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  run_->Pass(kRecallWait - absl::Seconds(1));
  EXPECT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(Attempt(), 0);
  run_->Pass(absl::Seconds(1));
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
  EXPECT_EQ(Attempt(), 1);
  // A strict run asks its member again for a contribution.
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
}

TEST_F(RecallsTest, ARoundDeadlineIsTheBound) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(3);
  StartSealed(spec);
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  EXPECT_EQ(run_->machine().NextTimer(), run_->now() + absl::Seconds(3));
  run_->Pass(absl::Seconds(3));
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_DROPPED);
}

TEST_F(RecallsTest, OneThatIsRefusedWhenItComesAgainEndsItsRound) {
  StartSealed(ElasticSpec());
  ASSERT_TRUE(run_->Lose("i1", 0, 1));
  run_->RefusePush("i1", 0, 1);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_REJECTED);
  EXPECT_EQ(Attempt(), 1);
  run_->Pass(absl::Seconds(2));  // The grace window.
  run_->FollowPlans();
  EXPECT_EQ(Version(), 1);
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
}

TEST_F(RecallsTest, APausedRunStillCommitsWhatItSealed) {
  StartSealed(SimpleSpec());
  ASSERT_TRUE(run_->Lose("i0", 0, 0));
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  EXPECT_THAT(Asked("i0"), ElementsAre(1));
  ASSERT_TRUE(run_->PushAgain("i0"));
  run_->FollowPlans();
  EXPECT_EQ(Version(), 1);
}

TEST_F(RecallsTest, AFaultPausesTheRunAndSaysWhichServerAndWhy) {
  Start(SimpleSpec());
  run_->SetFault(1, "DATA_LOSS: f0-v0.ver is missing");
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  const std::string reason = run_->state().state_reason();
  EXPECT_THAT(reason, HasSubstr("shard 1"));
  EXPECT_THAT(reason, HasSubstr("server-1"));
  EXPECT_THAT(reason, HasSubstr("f0-v0.ver is missing"));
  EXPECT_THAT(reason, HasSubstr("atoll run resume run"));
  // Durable, and recorded once.
  const int64_t revision = run_->state().revision();
  run_->SetFault(1, "DATA_LOSS: f0-v0.ver is missing");
  EXPECT_EQ(run_->state().revision(), revision);
  run_->Restart();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_EQ(run_->state().state_reason(), reason);
}

// A record with half a character could not be read at the next start.
TEST_F(RecallsTest, ProgramsReadAFaultInItsParts) {
  Start(SimpleSpec());
  const auto fault = [&] {
    return BuildRun(run_->machine(), /*with_tensors=*/false).fault();
  };
  EXPECT_EQ(fault().code(), "");
  run_->SetFault(1, "DATA_LOSS: f0-v0.ver is missing");
  EXPECT_EQ(fault().code(), "DATA_LOSS");
  EXPECT_THAT(fault().expected(), HasSubstr("shard 1 on server server-1"));
  EXPECT_THAT(fault().found(), HasSubstr("f0-v0.ver"));
  EXPECT_EQ(fault().next_command(), "atoll run show run");
  run_->alter_report = [](v1::ShardReport& report) {
    if (report.shard() != 1) return;
    report.mutable_fault_detail()->set_code("SHARD_BEHIND");
    report.mutable_fault_detail()->set_expected("commit 9");
    report.mutable_fault_detail()->set_found("commit 4");
    report.mutable_fault_detail()->set_next_command("atoll run list");
  };
  run_->SetFault(1, "its directory is an older copy");
  EXPECT_EQ(fault().code(), "SHARD_BEHIND");
  EXPECT_EQ(fault().expected(), "commit 9, in shard 1 on server server-1");
  EXPECT_EQ(fault().found(), "commit 4");
  EXPECT_EQ(fault().next_command(), "atoll run list");
  run_->alter_report = nullptr;
  run_->SetFault(1, "");
  EXPECT_EQ(fault().code(), "");
}

TEST_F(RecallsTest, AFaultNamesTheNewestCheckpointThatAllShardsHold) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_checkpoint_every_round_count(1);
  Start(spec);
  for (int round = 0; round < 2; ++round) {
    run_->PushAll("i0");
    run_->PushAll("i1");
    run_->FollowPlans();
  }
  ASSERT_EQ(Version(), 2);
  int32_t newest_on = 0;  // The shard that holds round-2; both hold round-1.
  run_->alter_report = [&](v1::ShardReport& report) {
    for (const auto& [pin_id, pin] : run_->state().pins()) {
      v1::ShardCheckpoint& held = *report.add_checkpoints();
      held.set_pin_id(pin_id);
      held.set_commit_seq(pin.pin_set().pin().commit_seq());
      held.set_durable(pin_id == "round-1" || report.shard() == newest_on);
    }
  };
  const auto next_command = [&] {
    return BuildRun(run_->machine(), /*with_tensors=*/false)
        .fault()
        .next_command();
  };
  run_->SetFault(0, "");
  run_->SetFault(1, "DATA_LOSS: f0-v2.ver is missing");
  EXPECT_EQ(next_command(), "atoll run restore run --from round-1");
  newest_on = 1;
  run_->SetFault(1, "DATA_LOSS: f0-v2.ver is missing");
  newest_on = 0;
  run_->SetFault(0, "");
  EXPECT_EQ(next_command(), "atoll run restore run --from round-2");
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("atoll run show run"));
}

TEST_F(RecallsTest, WhatAShardHasAcknowledgedIsKnownAfterRestarts) {
  Start(SimpleSpec());
  for (int round = 0; round < 2; ++round) {
    run_->PushAll("i0");
    run_->PushAll("i1");
    run_->FollowPlans();
  }
  ASSERT_EQ(Version(), 2);
  const auto acknowledged = [&](int32_t shard) {
    return BuildServerRunPlan(run_->state(), run_->machine().observed(), shard)
        .acknowledged_commit_seq();
  };
  run_->FollowPlan(0);
  run_->FollowPlan(1, /*persist=*/false);
  EXPECT_EQ(acknowledged(0), 2);
  EXPECT_EQ(acknowledged(1), 1);
  // A restarted server reports less, or nothing yet.
  run_->alter_report = [](v1::ShardReport& report) {
    report.set_persisted_commit_seq(0);
  };
  run_->RestartServer(0);
  EXPECT_EQ(acknowledged(0), 2);
  run_->FollowPlan(0);
  EXPECT_EQ(acknowledged(0), 2);
  // The log has what the shards had acknowledged at the newest COMMIT.
  for (const bool has_snapshot : {false, true}) {
    run_->Restart(has_snapshot ? run_->state().revision() : 0);
    EXPECT_EQ(acknowledged(0), 1);
    EXPECT_EQ(acknowledged(1), 1);
  }
}

TEST_F(RecallsTest, ALongFaultIsCutBetweenCharacters) {
  StartSealed(SimpleSpec());
  std::string fault = "a";
  for (int i = 0; i < 500; ++i) fault += "\xe2\x82\xac";
  run_->SetFault(1, fault);
  ASSERT_EQ(State(), v1::RUN_STATE_PAUSED);
  storage::v1::Record read;
  EXPECT_TRUE(read.ParseFromString(run_->log().back().SerializeAsString()));
  EXPECT_EQ(read.run_state_set().reason(), run_->state().state_reason());
}

TEST_F(RecallsTest, AFaultyRunIsNotResumedBeforeTheFaultIsGone) {
  Start(SimpleSpec());
  run_->SetFault(0, "DATA_LOSS: test");
  const absl::Status refused =
      run_->machine().Step(event::Resume{}, run_->now()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("server-0"));
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  run_->SetFault(0, "");
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
}

TEST_F(RecallsTest, TheSeriesCountShardsThatHaveStoppedOrAreHindered) {
  Start(SimpleSpec());
  VolatileSeries series;
  const auto sample = [&] {
    SampleSeries(run_->machine(), run_->now(), series);
    return std::make_pair(series.stopped_count.back().value(),
                          series.hindered_count.back().value());
  };
  EXPECT_EQ(sample(), std::make_pair(0.0, 0.0));
  run_->SetBlockedReason(0, "the disk is full");
  run_->SetBlockedReason(1, "the disk is full");
  EXPECT_EQ(sample(), std::make_pair(0.0, 2.0));
  run_->SetBlockedReason(0, "");
  run_->SetFault(0, "DATA_LOSS: test");
  EXPECT_EQ(sample(), std::make_pair(1.0, 1.0));
  run_->SetFault(0, "");
  EXPECT_EQ(sample(), std::make_pair(0.0, 1.0));
  std::map<std::string, v1::MetricSeries> all;
  const v1::GetMetricsResponse metrics = BuildMetrics(run_->machine(), series);
  for (const auto& one : metrics.series()) {
    all[one.name()] = one;
  }
  EXPECT_EQ(all["shards/hindered_count"].points_size(), 4);
  ASSERT_EQ(all["shards/stopped_count"].points_size(), 4);
  EXPECT_EQ(all["shards/stopped_count"].points(2).value(), 1);
}

TEST_F(RecallsTest, AFaultExplainsAPauseThatAnOperatorMade) {
  Start(SimpleSpec());
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  run_->SetFault(0, "DATA_LOSS: test");
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("DATA_LOSS: test"));
}

TEST_F(RecallsTest, AFaultBeforeTheStartPausesToo) {
  run_ = std::make_unique<RunSimulation>(SimpleSpec());
  run_->fault_at_start = "DATA_LOSS: test";
  run_->StartServers();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  run_->SetFault(0, "");
  run_->SetFault(1, "");
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
}

TEST_F(RecallsTest, WhatAStoppedShardHadPreparedIsNotBuiltOn) {
  StartSealed(SimpleSpec());
  run_->FollowPlan(1);
  run_->SetFault(1, "DATA_LOSS: test");
  run_->FollowPlan(0);
  EXPECT_EQ(Version(), 0);
  EXPECT_THAT(Asked("i0"), ElementsAre());
  run_->SetFault(1, "");
  EXPECT_EQ(Version(), 1);
}

}  // namespace
}  // namespace atl::coordinator
