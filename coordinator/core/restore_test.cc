// An operator takes a run back to an earlier cut.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status/refusal.h"
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

v1::RunSpec Checkpointed(v1::RunSpec spec) {
  spec.mutable_schedule()->set_round_count(6);
  spec.set_checkpoint_every_round_count(2);
  return spec;
}

class RestoreTest : public RunSimulationTest {
 protected:
  v1::RunState State() const { return run_->state().state(); }
  int64_t Version(int32_t f = 0) const {
    return run_->fragment(f).newest.version();
  }
  // Every island pushes, and every shard follows, until `count` more commits
  // are there and every shard has persisted them.
  void Commit(int64_t count) {
    const int64_t end = run_->state().commit_seq() + count;
    for (int i = 0; run_->state().commit_seq() < end && i < 100; ++i) {
      for (const char* id : {"i0", "i1"}) run_->PushAll(id);
      run_->FollowPlans();
    }
    run_->FollowPlans();
    ASSERT_GE(run_->state().commit_seq(), end) << run_->machine().waits_for();
  }
  v1::RestoreRunResponse Restore(const std::string& from,
                                 bool dry_run = false) {
    const absl::StatusOr<v1::RestoreRunResponse> restored =
        run_->RestoreRun(from, dry_run);
    EXPECT_TRUE(restored.ok()) << restored.status();
    return restored.value_or(v1::RestoreRunResponse());
  }
  // Checks that the restore is refused; returns the message.
  std::string Refused(const std::string& from, const std::string& reason) {
    const int64_t revision = run_->state().revision();
    const absl::Status status = run_->RestoreRun(from).status();
    EXPECT_TRUE(HasReason(status, reason)) << status;
    EXPECT_EQ(run_->state().revision(), revision);
    return std::string(status.message());
  }
  void ReturnAll() {
    run_->FollowPlans();
    for (const char* id : {"i0", "i1"}) ASSERT_TRUE(run_->Ready(id).ok());
  }
  void Lease(const std::string& pin_id, int64_t keep_bytes_max = 0) {
    v1::ExportCheckpointRequest request;
    request.set_pin_id(pin_id);
    request.set_keep_bytes_max(keep_bytes_max);
    ASSERT_TRUE(
        run_->machine().Step(event::Export{request}, run_->now()).ok());
    run_->Flush();
  }
  std::vector<std::string> PinIds() const {
    std::vector<std::string> ids;
    for (const auto& [pin_id, pin] : run_->state().pins()) ids.push_back(pin_id);
    return ids;
  }
  // The commits that readers are shown, in pages of two.
  std::vector<int64_t> ListCommits() const {
    std::vector<int64_t> commits;
    v1::ListRoundsRequest request;
    request.set_page_size(2);
    for (bool last = false; !last;) {
      const absl::StatusOr<RoundsPage> page =
          PlanRounds(run_->state(), request);
      EXPECT_TRUE(page.ok());
      if (!page.ok()) break;
      for (int64_t at = page->begin; at < page->end; ++at) {
        commits.push_back(at);
      }
      request.set_page_token(std::to_string(page->end - 1));
      last = page->last;
    }
    return commits;
  }
  v1::IslandState FindState(const std::string& id) const {
    return run_->state().FindMember(id)->record.state();
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(RestoreTest, ALogThatSupersedesALostOneJumpsAndAsksIslandsToJoinAgain) {
  Start(Checkpointed(SimpleSpec()));
  Commit(5);
  ASSERT_THAT(PinIds(), ElementsAre("round-2", "round-4"));
  ASSERT_TRUE(run_->machine().Step(event::Supersede{}, run_->now()).ok());
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().run_epoch(), 1001);
  EXPECT_EQ(run_->state().commit_seq(), 1'000'000'000);
  EXPECT_EQ(run_->state().restores().back().pin_id(), "round-4");
  EXPECT_EQ(Version(), 4);
  run_->Restart();
  // A live island's epoch is lower now, but no other process has joined as it.
  const absl::Status island =
      run_->machine().CheckIsland(run_->Credentials("i0"));
  EXPECT_TRUE(HasReason(island, "NOT_A_MEMBER")) << island;
  run_->FollowPlans();
  for (const char* id : {"i0", "i1"}) JoinReady(id);
  EXPECT_GT(run_->state().FindMember("i0")->record.island_epoch(), 1001);
  Commit(2);
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(Version(), 6);
  run_.reset();  // CheckLog expects numbers without a jump.
}

TEST_F(RestoreTest, ALogThatSupersedesALostOneKeepsTheEndOfARun) {
  Start(Checkpointed(SimpleSpec()));
  Commit(6);
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  ASSERT_TRUE(run_->machine().Step(event::Supersede{}, run_->now()).ok());
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->state().restores().back().cut_commit_seq(), 7);
  EXPECT_EQ(run_->state().run_epoch(), 1001);
  run_.reset();
}

TEST_F(RestoreTest, ALogThatSupersedesALostOnePausesARunWithoutACheckpoint) {
  Start(Checkpointed(SimpleSpec()));
  Commit(1);
  ASSERT_TRUE(run_->machine().Step(event::Supersede{}, run_->now()).ok());
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("atoll run resume run"));
  EXPECT_EQ(Version(), 1);
  run_->Restart();
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).ok());
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  run_.reset();
}

TEST_F(RestoreTest, GoesBackToACheckpointAndOnFromThereAsBefore) {
  Start(Checkpointed(SimpleSpec()));
  Commit(2);
  const std::string plan = run_->fragment(0).open.DebugString();
  const std::string point = run_->state().MakeRestorePoint().DebugString();
  Commit(3);
  ASSERT_EQ(Version(), 5);
  ASSERT_THAT(PinIds(), ElementsAre("round-2", "round-4"));

  const int64_t revision = run_->state().revision();
  v1::RestoreRunResponse would = Restore("round-2", /*dry_run=*/true);
  EXPECT_FALSE(would.changed());
  EXPECT_EQ(would.pin().commit_seq(), 3);
  EXPECT_EQ(would.lost_commit_count(), 3);
  EXPECT_EQ(would.lost_token_count(), 3 * 2 * 80);
  EXPECT_EQ(run_->state().revision(), revision);

  EXPECT_TRUE(Restore("round-2").changed());
  EXPECT_EQ(run_->state().run_epoch(), 2);
  EXPECT_EQ(run_->state().commit_seq(), 6);
  EXPECT_EQ(run_->state().MakeRestorePoint().DebugString(), point);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(PinIds(), ElementsAre("round-2"));
  EXPECT_EQ(BuildRun(run_->machine(), false).restored().commit_seq(), 6);
  EXPECT_EQ(FindState("i0"), v1::ISLAND_STATE_JOINING);
  EXPECT_TRUE(run_->machine().CheckIsland(run_->Credentials("i0")).ok());

  // Nothing opens before every shard and every island has gone back.
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("shard 0 on server-0"));
  ASSERT_TRUE(run_->Ready("i0").ok());
  ASSERT_TRUE(run_->Ready("i1").ok());
  run_->FollowPlan(0);
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  run_->FollowPlan(1);
  ASSERT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_EQ(run_->fragment(0).open.DebugString(), plan);
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->state().merged_token_count(), 6 * 2 * 80);
  EXPECT_EQ(run_->state().commit_seq(), 10);
  EXPECT_THAT(PinIds(), ElementsAre("final", "round-2", "round-4"));
  run_->CheckAllDecided();
}

TEST_F(RestoreTest, AStrictRunWaitsForTheIslandsThatLive) {
  v1::RunSpec spec = Checkpointed(SimpleSpec());
  spec.mutable_schedule()->set_min_quorum(1);
  spec.mutable_schedule()->set_island_count_min(1);
  Start(spec);
  Commit(3);
  Restore("round-2");
  run_->FollowPlans();
  ASSERT_TRUE(run_->Ready("i0").ok());
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("island i1"));
  // A whole lease, and not longer.
  run_->Pass(absl::Seconds(29), {"i1"});
  EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_JOINING);
  run_->Pass(absl::Seconds(2), {"i1"});
  EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_LOST);
  EXPECT_THAT(run_->Expected(), ElementsAre(0));
}

TEST_F(RestoreTest, ARepeatedCallChangesNothingUntilTheNextCommit) {
  Start(Checkpointed(SimpleSpec()));
  Commit(5);
  Restore("round-4");
  const int64_t revision = run_->state().revision();
  for (const char* from : {"round-4", "commit:4", ""}) {
    const v1::RestoreRunResponse again = Restore(from);
    EXPECT_FALSE(again.changed());
    EXPECT_EQ(again.pin().pin_id(), "round-4");
  }
  EXPECT_EQ(run_->state().revision(), revision);
  // No shard has said yet what it holds.
  EXPECT_THAT(Refused("round-2", "NOT_REPORTED"), HasSubstr("restore"));
  ReturnAll();
  Commit(1);
  EXPECT_TRUE(Restore("round-4").changed());
  EXPECT_EQ(run_->state().run_epoch(), 3);
  ReturnAll();
  EXPECT_TRUE(Restore("round-2").changed()) << "another source";
  EXPECT_EQ(run_->state().run_epoch(), 4);
  EXPECT_THAT(ListCommits(), ElementsAre(1, 2));
}

TEST_F(RestoreTest, FindsACutByItsCommitAndNamesTheNearest) {
  Start(Checkpointed(SimpleSpec()));
  EXPECT_THAT(Refused("", "NO_CHECKPOINT"), HasSubstr("no checkpoint"));
  Commit(5);
  EXPECT_EQ(Restore("commit:2", /*dry_run=*/true).pin().pin_id(), "round-2");
  EXPECT_EQ(Restore("", /*dry_run=*/true).pin().pin_id(), "round-4");
  EXPECT_THAT(Refused("commit:3", "NO_CHECKPOINT"),
              HasSubstr("round-2 (commit:2), round-4 (commit:4)"));
  EXPECT_THAT(Refused("commit:99", "NO_CHECKPOINT"),
              HasSubstr("nearest: round-4 (commit:4)"));
  EXPECT_THAT(Refused("round-3", "NO_CHECKPOINT"), HasSubstr("round-2"));
  for (const char* wrong : {"commit:", "commit:x", "commit:-1", "Round 2",
                            "commit:99999999999999999999"}) {
    EXPECT_EQ(run_->RestoreRun(wrong).status().code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
  }
  Restore("round-2");
  EXPECT_THAT(Refused("commit:4", "NO_CHECKPOINT"),
              HasSubstr("an earlier restore took out"));
}

TEST_F(RestoreTest, NamesTheShardThatDoesNotHoldTheCut) {
  Start(Checkpointed(SimpleSpec()));
  run_->makes_durable = false;
  Commit(2);
  Lease("lease");
  Commit(1);
  EXPECT_THAT(Refused("round-2", "NOT_DURABLE"),
              HasSubstr("shard 0 on server server-0"));
  EXPECT_THAT(Refused("", "NOT_DURABLE"),
              HasSubstr("durable on every shard: lease (commit:2)"));
  // A lease at the same cut will do.
  EXPECT_EQ(Restore("commit:2", /*dry_run=*/true).pin().pin_id(), "lease");
  run_->RestartServer(1);
  EXPECT_THAT(Refused("lease", "NOT_REPORTED"), HasSubstr("shard 1"));
}

TEST_F(RestoreTest, ACompletedRunIsActiveAgainAndACancelledOneStaysSo) {
  Start(Checkpointed(SimpleSpec()));
  EXPECT_THAT(PinIds(), ElementsAre());
  run_->Settle();
  ASSERT_EQ(State(), v1::RUN_STATE_COMPLETED);
  run_->FollowPlans();
  // To its end: nothing is lost, and it has ended still.
  v1::RestoreRunResponse restored = Restore("final");
  EXPECT_TRUE(restored.changed());
  EXPECT_EQ(restored.lost_commit_count(), 0);
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_FALSE(Restore("final").changed());
  EXPECT_EQ(ListCommits().size(), 6u);
  run_->FollowPlans();
  restored = Restore("round-4");
  EXPECT_EQ(restored.lost_commit_count(), 2);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().end_time(), absl::InfiniteFuture());
  ReturnAll();
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_THAT(ListCommits(), ElementsAre(1, 2, 3, 4, 9, 10));
  run_->CheckLog();

  Start(Checkpointed(SimpleSpec()));
  Commit(2);
  run_->machine().Step(event::Cancel{}, run_->now()).IgnoreError();
  run_->Flush();
  Refused("round-2", "RUN_ENDED");
  run_ = std::make_unique<RunSimulation>(SimpleSpec());
  Refused("round-2", "NOT_STARTED");
}

TEST_F(RestoreTest, EndsAFaultOfTheOldEpochAndKeepsOneOfTheNew) {
  for (const char* fault : {"SHARD_BEHIND: test", "DATA_LOSS: test"}) {
    Start(Checkpointed(SimpleSpec()));
    Commit(3);
    run_->SetFault(1, fault);
    ASSERT_EQ(State(), v1::RUN_STATE_PAUSED);
    Restore("round-2");
    EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
    // Its late report is of the old epoch.
    run_->SetFault(1, fault);
    EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
    EXPECT_FALSE(run_->machine().fault().has_value());
    ReturnAll();
    EXPECT_EQ(Phase(), RoundPhase::kOpen);
    run_->SetFault(1, "DATA_LOSS: round-2 is not here");
    EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  }
}

TEST_F(RestoreTest, AfterADamagedCutTheDefaultIsAnEarlierOne) {
  Start(Checkpointed(SimpleSpec()));
  Commit(5);
  Restore("round-4");
  run_->FollowPlans();
  // Its manifest is whole, so the shard still reports it as durable.
  run_->SetFault(1, "DATA_LOSS: a block of round-4 is damaged");
  ASSERT_EQ(State(), v1::RUN_STATE_PAUSED);
  ASSERT_TRUE(run_->machine().fault().has_value());
  EXPECT_EQ(run_->machine().fault()->next_command(),
            "atoll run restore run --from round-2");
  EXPECT_FALSE(Restore("round-4").changed()) << "the file may come back";
  const v1::RestoreRunResponse restored = Restore("");
  EXPECT_TRUE(restored.changed());
  EXPECT_EQ(restored.pin().pin_id(), "round-2");
  ReturnAll();
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
}

TEST_F(RestoreTest, WhatAShardHasLostComesFromTheMirror) {
  v1::RunSpec spec = Checkpointed(SimpleSpec());
  spec.mutable_checkpoint()->set_mirror(true);
  Start(spec);
  run_->makes_copies = true;
  Commit(2);
  const auto work = run_->machine().FindMirrorWork();
  ASSERT_TRUE(work.has_value());
  ASSERT_EQ(work->manifest.pin().pin_id(), "round-2");
  ASSERT_TRUE(run_->machine()
                  .Step(event::MirrorEnded{
                            .run_epoch = 1, .pin_id = "round-2",
                            .commit_seq = work->manifest.pin().commit_seq()},
                        run_->now())
                  .ok());
  run_->Flush();
  run_->makes_copies = false;
  Commit(3);
  // Shard 1 lost all; round-4 was on its disk only.
  run_->alter_report = [](v1::ShardReport& report) {
    if (report.shard() == 1) report.clear_checkpoints();
  };
  run_->SetFault(1, "SHARD_BEHIND: no version");
  EXPECT_THAT(Refused("round-4", "NOT_DURABLE"), HasSubstr("round-2"));
  const v1::RestoreRunResponse restored = Restore("");
  EXPECT_TRUE(restored.changed());
  EXPECT_EQ(restored.pin().pin_id(), "round-2");
  const v1::RestoredCut& cut =
      BuildServerRunPlan(run_->state(), run_->machine().observed(), 1)
          .restored();
  EXPECT_EQ(cut.mirror_run_epoch(), 1);
  EXPECT_EQ(cut.mirror_commit_seq(), restored.pin().commit_seq());
  // It loses its disk once more, before the next commit.
  EXPECT_FALSE(Restore("").changed());
  run_->FollowPlans();
  run_->SetFault(1, "SHARD_BEHIND: no version");
  const v1::RestoreRunResponse again = Restore("round-2");
  EXPECT_TRUE(again.changed());
  EXPECT_EQ(run_->state().run_epoch(), 3);
}

TEST_F(RestoreTest, ALossOfTheOldEpochIsNotOneOfTheNew) {
  Start(Checkpointed(SimpleSpec()));
  Commit(3);
  Restore("round-2");
  // The island has not heard of it yet.
  v1::ReportProgressRequest late;
  late.set_loss(1e6);
  late.set_loss_step_count(4);
  ASSERT_TRUE(
      run_->machine()
          .Step(event::Progress{run_->Credentials("i0"), late}, run_->now())
          .ok());
  run_->Flush();
  ReturnAll();
  Commit(1);
  for (const v1::MetricPoint& point : run_->state().loss_points()) {
    EXPECT_LT(point.value(), 1e6);
  }
}

TEST_F(RestoreTest, RemovedRevokedAndLostIslandsStaySo) {
  v1::RunSpec spec = Checkpointed(ElasticSpec());
  spec.mutable_data()->set_data_shard_count(5);
  Start(spec);
  Commit(3);
  for (const char* id : {"i2", "i3", "i4"}) JoinReady(id);
  ASSERT_TRUE(run_->Remove("i2").ok());
  ASSERT_TRUE(run_->Revoke("i3").ok());
  ASSERT_TRUE(run_->Leave("i4").ok());
  Restore("round-2");
  EXPECT_EQ(FindState("i1"), v1::ISLAND_STATE_JOINING);
  EXPECT_EQ(FindState("i2"), v1::ISLAND_STATE_REMOVED);
  EXPECT_EQ(FindState("i3"), v1::ISLAND_STATE_REMOVED);
  EXPECT_TRUE(run_->state().FindMember("i3")->record.revoked());
  EXPECT_EQ(FindState("i4"), v1::ISLAND_STATE_LEFT);
  EXPECT_FALSE(run_->Join("i2").ok());
}

TEST_F(RestoreTest, AnIslandWithAnOlderCutIsNotReady) {
  Start(Checkpointed(SimpleSpec()));
  Commit(3);
  Restore("round-2");
  run_->FollowPlans();
  const auto report = [&](int64_t commit_seq) {
    return run_->machine()
        .Step(event::Ready{run_->Credentials("i0"), commit_seq}, run_->now())
        .status();
  };
  EXPECT_TRUE(HasReason(report(2), "CUT_SUPERSEDED"));
  EXPECT_TRUE(HasReason(report(3), "CUT_SUPERSEDED"));
  EXPECT_TRUE(HasReason(report(5), "NO_SUCH_CUT"));
  EXPECT_TRUE(report(4).ok());
  EXPECT_EQ(FindState("i0"), v1::ISLAND_STATE_READY);
}

// The simulation checks that no timer of the past is left.
TEST_F(RestoreTest, ARoundKeepsItsDeadlineWhileAShardHasNotReportedAgain) {
  v1::RunSpec spec = Checkpointed(ElasticSpec());
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(4);
  Start(spec);
  Commit(3);
  Restore("round-2");
  ReturnAll();
  ASSERT_EQ(run_->fragment(0).phase, RoundPhase::kOpen);
  run_->RestartServer(1);
  run_->Pass(absl::Seconds(10));
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
}

TEST_F(RestoreTest, ARestoredIslandNeverReusesASeq) {
  Start(Checkpointed(SimpleSpec()));
  Commit(3);
  // Undecided, and stored on one shard only.
  run_->Push("i0", 0, 0);
  const auto seq_max = [&] {
    return run_->state().outcomes().SeqMax(0, kSeqMax);
  };
  const int64_t before = seq_max();
  ASSERT_GE(before, 3);
  Restore("round-2");
  EXPECT_EQ(seq_max(), before + 1) << "it is dropped";
  ReturnAll();
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_GT(run_->state().FindMember("i0")->record.next_seq(), before + 1);
}

TEST_F(RestoreTest, ReadersSeeOnePast) {
  Start(Checkpointed(SimpleSpec()));
  Commit(1);
  ASSERT_TRUE(run_->Evaluate("i1", 1, 5).ok());
  Commit(2);
  ASSERT_TRUE(run_->Evaluate("i1", 3, 4).ok());
  ASSERT_TRUE(run_->state().IsEvaluated(3));
  Restore("round-2");
  EXPECT_THAT(ListCommits(), ElementsAre(1, 2));
  EXPECT_EQ(run_->state().norm_points().size(), 2u);
  EXPECT_EQ(run_->state().newest_evaluation()->version(), 1);
  EXPECT_FALSE(run_->state().IsEvaluated(3));
  ReturnAll();
  Commit(3);
  EXPECT_THAT(ListCommits(), ElementsAre(1, 2, 5, 6, 7));
  const v1::GetMetricsResponse metrics =
      BuildMetrics(run_->machine(), VolatileSeries());
  ASSERT_EQ(metrics.restores_size(), 1);
  EXPECT_EQ(metrics.restores(0).cut_commit_seq(), 3);
  // After a second restore, to before the first.
  Lease("lease");
  Restore("round-2");
  ReturnAll();
  EXPECT_THAT(ListCommits(), ElementsAre(1, 2));
  EXPECT_EQ(run_->state().norm_points().size(), 2u);
}

TEST_F(RestoreTest, PlansTellShardsAndIslandsOfTheCut) {
  Start(Checkpointed(SimpleSpec(2)));
  Commit(4);
  const auto island_plan = [&] {
    return BuildSharedIslandPlan(run_->state(), run_->machine().observed(),
                                 *run_);
  };
  const auto server_plan = [&] {
    return BuildServerRunPlan(run_->state(), run_->machine().observed(), 0);
  };
  EXPECT_EQ(island_plan().restored_commit_seq(), 0);
  EXPECT_FALSE(server_plan().has_restored());
  const v1::Pin pin = Restore("round-2").pin();
  EXPECT_EQ(island_plan().run_epoch(), 2);
  EXPECT_EQ(island_plan().restored_commit_seq(), 5);
  EXPECT_EQ(island_plan().commit_seq(), 5);
  const v1::ServerRunPlan plan = server_plan();
  EXPECT_EQ(plan.restored().commit_seq(), 5);
  EXPECT_EQ(plan.restored().pin_id(), "round-2");
  ASSERT_EQ(plan.restored().cut_size(), 2);
  for (int f = 0; f < 2; ++f) {
    EXPECT_EQ(plan.restored().cut(f).DebugString(), pin.cut(f).DebugString());
  }
  EXPECT_TRUE(plan.commits().empty());
  EXPECT_TRUE(plan.seals().empty());
  EXPECT_TRUE(plan.dropped().empty());
}

TEST_F(RestoreTest, ALeaseStaysAndKeepsNoMoreContributions) {
  Start(Checkpointed(SimpleSpec()));
  Commit(1);
  Lease("early", /*keep_bytes_max=*/1 << 20);
  Commit(1);
  Lease("late");
  Commit(1);
  Restore("commit:1");
  EXPECT_THAT(PinIds(), ElementsAre("early"));
  EXPECT_EQ(run_->state().pins().at("early").pin_set().pin().keep_end(), 2);
  ReturnAll();
  Commit(1);
  EXPECT_EQ(run_->state().pins().at("early").pin_set().pin().keep_end(), 2);
  // A renewal keeps the point of its cut.
  v1::ExportCheckpointRequest request;
  request.set_pin_id("early");
  request.set_keep_bytes_max(1 << 20);
  request.mutable_lease_duration()->set_seconds(3600);
  ASSERT_TRUE(run_->machine().Step(event::Export{request}, run_->now()).ok());
  run_->Flush();
  EXPECT_EQ(run_->state()
                .pins()
                .at("early")
                .pin_set()
                .point()
                .fragments(0)
                .newest()
                .version(),
            1);
}

TEST_F(RestoreTest, EveryTimingGoesBackAndToItsEnd) {
  v1::RunSpec streaming = SimpleSpec(3);
  streaming.mutable_schedule()->set_fragment_schedule(
      v1::FRAGMENT_SCHEDULE_STAGGERED);
  for (const v1::RunSpec& spec :
       {SimpleSpec(2), ElasticSpec(2), AsyncSpec(2), streaming}) {
    SCOPED_TRACE(spec.schedule().ShortDebugString());
    Start(Checkpointed(spec));
    Commit(3);
    Lease("lease");
    const std::string point = run_->state().MakeRestorePoint().DebugString();
    Commit(3);
    Restore("lease");
    EXPECT_EQ(run_->state().MakeRestorePoint().DebugString(), point);
    ReturnAll();
    run_->Settle();
    run_->Pass(absl::Seconds(2));
    run_->Settle();
    EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED) << run_->machine().waits_for();
    run_->CheckLog();
  }
}

TEST_F(RestoreTest, ACrashAtAnyRecordEndsInTheSameDecisions) {
  Start(Checkpointed(SimpleSpec()));
  Commit(5);
  // Right before the record: nobody was told, and the same call does it.
  run_->LoseNextBatch();
  EXPECT_FALSE(run_->RestoreRun("round-2").ok());
  EXPECT_EQ(run_->state().run_epoch(), 1);
  run_->FollowPlans();
  EXPECT_TRUE(Restore("round-2").changed());
  // Right after it, from every snapshot.
  const auto size = static_cast<int64_t>(run_->log().size());
  for (int64_t cut = 0; cut <= size; ++cut) run_->Restart(cut);
  EXPECT_FALSE(Restore("round-2").changed());
  run_->FollowPlan(0);
  run_->Restart();
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  ReturnAll();
  run_->Restart(static_cast<int64_t>(run_->log().size()));
  run_->Settle();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(run_->state().merged_token_count(), 6 * 2 * 80);
  run_->CheckAllDecided();
}

}  // namespace
}  // namespace atl::coordinator
