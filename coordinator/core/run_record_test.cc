// A run's record of its islands' work.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "atoll/v1/island_service.pb.h"
#include "coordinator/core/outputs/run_events.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class RunRecordTest : public RunSimulationTest {
 protected:
  void ReportLoss(const std::string& id, double loss) {
    v1::ReportProgressRequest request;
    request.set_loss(loss);
    request.set_loss_step_count(4);
    ASSERT_TRUE(Progress(id, request).ok());
  }
  absl::Status Progress(const std::string& id,
                        const v1::ReportProgressRequest& request) {
    const absl::Status status =
        run_->machine()
            .Step(event::Progress{run_->Credentials(id), request}, run_->now())
            .status();
    run_->Flush();
    return status;
  }
  // The newest commit as history has it.
  v1::Round NewestRound() const {
    v1::Round round;
    for (const storage::v1::Record& record : run_->log()) {
      if (record.has_round_committed()) {
        round = record.round_committed().round();
      }
    }
    return round;
  }
  void Commit() {
    for (const char* id : {"i0", "i1"}) run_->PushAll(id);
    run_->FollowPlans();
    run_->FollowPlans();
  }
  // i1 trains for the round, which goes on without it: an elastic run.
  void CommitWithoutI1(int64_t commit_seq) {
    ASSERT_TRUE(run_->Train("i1", 0));
    run_->PushAll("i0");
    run_->Pass(absl::Seconds(10));
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(run_->state().commit_seq(), commit_seq)
        << run_->machine().waits_for();
  }
  // Then its contribution comes.
  void PushLateFromI1() {
    run_->PushLate("i1", 0);
    run_->FollowPlans();
    ASSERT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_LATE);
  }
};

TEST_F(RunRecordTest, ARoundsLossIsTheMeanOfItsContributionsLosses) {
  Start(SimpleSpec());
  run_->training_losses = {{"i0", 0.1}, {"i1", 0.2}};
  // Reports, which come whenever they come, have no part in it.
  ReportLoss("i0", 50);
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(NewestRound().training_loss(), (0.1 + 0.2) / 2);
  EXPECT_EQ(NewestRound().contributions(0).info().training_loss(), 0.1);
  EXPECT_EQ(run_->state().loss_points().back().value(), (0.1 + 0.2) / 2);
}

TEST_F(RunRecordTest, AnOlderIslandsContributionHasTheLossOfItsReports) {
  Start(SimpleSpec());
  run_->training_losses = {{"i1", 0.25}};
  ReportLoss("i0", 50);
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(NewestRound().training_loss(), (50 + 0.25) / 2);
}

TEST_F(RunRecordTest, OfOlderIslandsAloneTheReportsOfProgressCount) {
  Start(SimpleSpec());
  ReportLoss("i0", 2);
  ReportLoss("i1", 3);
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(NewestRound().training_loss(), 2.5);
  Commit();  // No report has come since.
  EXPECT_FALSE(NewestRound().has_training_loss());
}

TEST_F(RunRecordTest, ALossThatIsNoLossIsRefused) {
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(), -1.0}) {
    Start(ElasticSpec());
    run_->training_losses = {{"i0", loss}};
    Commit();
    run_->Pass(absl::Seconds(2));
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(run_->state().commit_seq(), 1) << run_->machine().waits_for();
    EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_REJECTED);
    EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
    const v1::Round round = NewestRound();
    EXPECT_FALSE(round.has_training_loss());
    bool is_told = false;
    for (const v1::RoundContribution& one : round.contributions()) {
      if (one.outcome() != v1::OUTCOME_REJECTED) continue;
      is_told = true;
      EXPECT_THAT(one.reason(), HasSubstr("training_loss"));
    }
    EXPECT_TRUE(is_told);
  }
}

TEST_F(RunRecordTest, ALeaveIsKeptWithWhatItTold) {
  Start(SimpleSpec());
  v1::LeaveRequest request;
  request.set_reason("stop requested" + std::string(300, '.'));
  request.set_step(12);
  request.set_loss(2.5);
  ASSERT_TRUE(run_->machine()
                  .Step(event::Leave{run_->Credentials("i0"), request},
                        run_->now())
                  .ok());
  run_->Flush();
  run_->Restart();
  const storage::v1::MemberSet& left = run_->state().members()[0].record;
  EXPECT_EQ(left.state(), v1::ISLAND_STATE_LEFT);
  EXPECT_THAT(left.leave().reason(), StartsWith("stop requested."));
  EXPECT_EQ(left.leave().reason().size(), 256);
  EXPECT_EQ(left.leave().step(), 12);
  EXPECT_EQ(left.leave().loss(), 2.5);
  const v1::ListIslandsResponse islands = BuildIslands(run_->machine());
  EXPECT_EQ(islands.islands(0).leave().step(), 12);
  EXPECT_FALSE(islands.islands(1).has_leave());
  const auto told = ToEvent(run_->log().back(), {});
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->island_changed().leave().step(), 12);
  // It comes back.
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_FALSE(run_->state().members()[0].record.has_leave());
  run_->CheckLog();
}

TEST_F(RunRecordTest, ALeaveWithALossThatIsNoNumberIsRefused) {
  Start(SimpleSpec());
  v1::LeaveRequest request;
  request.set_loss(std::numeric_limits<double>::quiet_NaN());
  const absl::Status status =
      run_->machine()
          .Step(event::Leave{run_->Credentials("i0"), request}, run_->now())
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(run_->state().members()[0].ready());
}

v1::UnpushedWork MakeWork(int64_t version, int64_t step_count = 3) {
  v1::UnpushedWork work;
  work.set_run_epoch(1);
  work.set_version(version);
  work.set_step_count(step_count);
  work.set_token_count(step_count * 20);
  return work;
}

TEST_F(RunRecordTest, EveryOutcomeCountsItsContributionsTokens) {
  Start(ElasticSpec());
  run_->claims_tokens = true;
  Commit();
  run_->Pass(absl::Seconds(2));
  ASSERT_EQ(run_->state().commit_seq(), 1);
  const v1::IslandTotals& merged = run_->state().members()[0].totals;
  EXPECT_EQ(merged.merged_step_count(),
            NewestRound().contributions(0).info().step_count());
  EXPECT_EQ(merged.merged_token_count(),
            NewestRound().contributions(0).info().token_count());
  EXPECT_EQ(merged.unmerged_token_count(), 0);
  ASSERT_NO_FATAL_FAILURE(CommitWithoutI1(2));
  ASSERT_NO_FATAL_FAILURE(PushLateFromI1());
  const v1::IslandTotals& late = run_->state().members()[1].totals;
  EXPECT_GT(late.unmerged_token_count(), 0);
  EXPECT_EQ(late.unmerged_token_count(), late.unmerged_step_count() * 20);
  run_->CheckLog();
}

TEST_F(RunRecordTest, UnpushedWorkCountsOnceAFragmentAndVersion) {
  Start(SimpleSpec());
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  v1::ReportProgressRequest request;
  *request.add_unpushed() = MakeWork(0);
  *request.add_unpushed() = MakeWork(1, 5);
  const size_t log_size = run_->log().size();
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->log().size(), log_size + 1);
  // The answer was lost: it tells it again.
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->log().size(), log_size + 1);
  run_->Restart();
  ASSERT_TRUE(Progress("i0", request).ok());
  run_->Restart(run_->state().revision());
  ASSERT_TRUE(Progress("i0", request).ok());
  const v1::IslandTotals& totals = run_->state().members()[0].totals;
  EXPECT_EQ(totals.unpushed_step_count(), 8);
  EXPECT_EQ(totals.unpushed_token_count(), 160);
  EXPECT_EQ(run_->state().members()[1].totals.unpushed_token_count(), 0);
  const v1::ListIslandsResponse islands = BuildIslands(run_->machine());
  EXPECT_EQ(islands.islands(0).totals().unpushed_token_count(), 160);
  run_->CheckLog();
}

TEST_F(RunRecordTest, WorkOfAVersionThatDoesNotExistIsNotCounted) {
  Start(SimpleSpec());
  for (v1::UnpushedWork work : {MakeWork(2), MakeWork(0)}) {
    if (work.version() == 0) {
      work.set_fragment(7);
      work.set_run_epoch(9);
    }
    v1::ReportProgressRequest request;
    *request.add_unpushed() = work;
    ASSERT_TRUE(Progress("i0", request).ok());
  }
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(), 0);
}

TEST_F(RunRecordTest, UnpushedWorkThatIsNoneIsRefusedByName) {
  Start(SimpleSpec());
  v1::ReportProgressRequest request;
  *request.add_unpushed() = MakeWork(0, -1);
  const absl::Status status = Progress("i0", request);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("unpushed[0]"));
}

TEST_F(RunRecordTest, AContributionWithAnOutcomeIsNoUnpushedWork) {
  Start(SimpleSpec());
  Commit();
  v1::ReportProgressRequest request;
  *request.add_unpushed() = MakeWork(0);
  request.mutable_unpushed(0)->set_seq(
      NewestRound().contributions(0).info().key().seq());
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(), 0);
}

// The island does not know that a shard has got all of it.
TEST_F(RunRecordTest, AnOutcomeCountsInPlaceOfItsUnpushedWork) {
  Start(ElasticSpec());
  ASSERT_NO_FATAL_FAILURE(CommitWithoutI1(1));
  v1::ReportProgressRequest request;
  *request.add_unpushed() = MakeWork(0);
  request.mutable_unpushed(0)->set_seq(1);  // Its first.
  ASSERT_TRUE(Progress("i1", request).ok());
  ASSERT_NO_FATAL_FAILURE(PushLateFromI1());
  const v1::IslandTotals& totals = run_->state().members()[1].totals;
  EXPECT_EQ(totals.unpushed_step_count(), 0);
  EXPECT_EQ(totals.unmerged_step_count(), 4);
  EXPECT_EQ(run_->state().members()[1].unmerged_count, 1);
}

// Versions go back, and what a restore takes is told after it: one piece of each
// fragment, for the versions of an ended epoch are not known any longer.
TEST_F(RunRecordTest, ARestoreForgetsNoUnpushedWork) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(8);
  spec.set_checkpoint_every_round_count(1);
  Start(spec);
  for (int i = 0; i < 3; ++i) Commit();
  const auto restored = run_->RestoreRun("round-1");
  ASSERT_TRUE(restored.ok()) << restored.status();
  v1::ReportProgressRequest request;
  *request.add_unpushed() = MakeWork(3, 2);  // Of the epoch before.
  *request.add_unpushed() = MakeWork(4, 2);
  v1::UnpushedWork work = MakeWork(1, 4);
  work.set_run_epoch(run_->state().run_epoch());
  *request.add_unpushed() = work;
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(), 6);
  run_->CheckLog();
}

// A round of one version may end twice without a push.
TEST_F(RunRecordTest, EachNumberedPieceOfUnpushedWorkCountsOnce) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(8);
  spec.set_checkpoint_every_round_count(1);
  Start(spec);
  for (int i = 0; i < 2; ++i) Commit();
  const auto tell = [this](const std::vector<v1::UnpushedWork>& work) {
    v1::ReportProgressRequest request;
    for (const v1::UnpushedWork& one : work) *request.add_unpushed() = one;
    EXPECT_TRUE(Progress("i0", request).ok());
    return run_->state().members()[0].totals.unpushed_step_count();
  };
  const auto make = [](int64_t number, int64_t version, int64_t step_count,
                       int64_t island_epoch = 1) {
    v1::UnpushedWork work = MakeWork(version, step_count);
    work.set_island_epoch(island_epoch);
    work.set_number(number);
    return work;
  };
  EXPECT_EQ(tell({make(1, 1, 1), make(2, 1, 2)}), 3);
  EXPECT_EQ(tell({make(1, 1, 1), make(2, 1, 2)}), 3) << "the answer was lost";
  run_->Restart();
  EXPECT_EQ(tell({make(2, 1, 2), make(3, 0, 4)}), 7) << "of an older version";
  run_->Restart(run_->state().revision());
  EXPECT_EQ(tell({make(3, 0, 4)}), 7);
  EXPECT_EQ(tell({make(1, 1, 8, /*island_epoch=*/2)}), 7) << "not yet begun";
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(tell({make(3, 0, 4), make(1, 1, 8, /*island_epoch=*/2)}), 15);
  run_->Settle();
  const auto restored = run_->RestoreRun("round-1");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(tell({make(2, 1, 16, 2), make(3, 1, 32, 2)}), 63)
      << "both of the ended epoch";
  EXPECT_EQ(tell({make(2, 1, 16, 2), make(3, 1, 32, 2)}), 63);
  run_->CheckLog();
}

// The steps after a push are told after it.
TEST_F(RunRecordTest, AnOutcomeCountsInPlaceOfWorkThatIsNotTheNewest) {
  Start(ElasticSpec());
  ASSERT_NO_FATAL_FAILURE(CommitWithoutI1(1));
  v1::ReportProgressRequest request;
  for (int number : {1, 2}) {
    v1::UnpushedWork& work = *request.add_unpushed();
    work = MakeWork(number - 1, number);
    work.set_island_epoch(1);
    work.set_number(number);
  }
  request.mutable_unpushed(0)->set_seq(1);
  ASSERT_TRUE(Progress("i1", request).ok());
  ASSERT_NO_FATAL_FAILURE(PushLateFromI1());
  const v1::IslandTotals& totals = run_->state().members()[1].totals;
  EXPECT_EQ(totals.unpushed_step_count(), 2);
  EXPECT_EQ(totals.unmerged_step_count(), 4);
}

TEST_F(RunRecordTest, AnOutcomeCountsInPlaceOfAContributionThatIsNotTheNewest) {
  Start(ElasticSpec());
  ASSERT_NO_FATAL_FAILURE(CommitWithoutI1(1));
  v1::ReportProgressRequest request;
  for (int64_t seq : {1, 2, 3, 4}) {
    v1::UnpushedWork& work = *request.add_unpushed();
    work = MakeWork(/*version=*/seq > 1, /*step_count=*/seq);
    work.set_island_epoch(1);
    work.set_number(seq);
    work.set_seq(seq);
  }
  ASSERT_TRUE(Progress("i1", request).ok());
  const v1::IslandTotals& totals = run_->state().members()[1].totals;
  EXPECT_EQ(totals.unpushed_step_count(), 10);
  run_->Restart(run_->state().revision());
  ASSERT_NO_FATAL_FAILURE(PushLateFromI1());
  const v1::IslandTotals& after = run_->state().members()[1].totals;
  EXPECT_EQ(after.unpushed_step_count(), 9);
  EXPECT_EQ(after.unmerged_step_count(), 4);
  run_->CheckLog();
}

TEST_F(RunRecordTest, FewContributionsWithoutAPushAreKept) {
  Start(SimpleSpec());
  v1::ReportProgressRequest request;
  for (int number = 1; number <= 20; ++number) {
    v1::UnpushedWork& work = *request.add_unpushed();
    work = MakeWork(0);
    work.set_island_epoch(1);
    work.set_number(number);
    work.set_seq(40 - number);
  }
  ASSERT_TRUE(Progress("i0", request).ok());
  const Member& member = run_->state().members()[0];
  EXPECT_EQ(member.totals.unpushed_step_count(), 60);
  EXPECT_EQ(member.newest_unpushed.size(), kUnpushedKeptMax);
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(member.totals.unpushed_step_count(), 60) << "the answer was lost";
}

TEST_F(RunRecordTest, AContributionIsUnpushedWorkOnce) {
  Start(SimpleSpec());
  v1::ReportProgressRequest request;
  v1::UnpushedWork& work = *request.add_unpushed();
  work = MakeWork(0);
  work.set_seq(1);
  work.set_number(1);
  work.set_island_epoch(1);
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(), 3);
  // The next process has it in its local checkpoint.
  ASSERT_TRUE(run_->Join("i0").ok());
  work.set_island_epoch(2);
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(), 3);
  work.set_seq(2);
  work.set_number(2);
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(), 6);
}

TEST_F(RunRecordTest, ALocalCheckpointTakesBackTheWorkThatALeaveTold) {
  Start(SimpleSpec());
  const auto tell = [this](int64_t island_epoch, int64_t number,
                           int64_t step_count, int64_t restored_step_count,
                           int64_t restored_island_epoch = 0) {
    v1::ReportProgressRequest request;
    v1::UnpushedWork& work = *request.add_unpushed();
    work = MakeWork(0, step_count);
    work.set_island_epoch(island_epoch);
    work.set_number(number);
    work.set_restored_step_count(restored_step_count);
    work.set_restored_token_count(restored_step_count * 20);
    work.set_restored_island_epoch(restored_island_epoch);
    EXPECT_TRUE(Progress("i0", request).ok());
    const v1::IslandTotals& totals = run_->state().members()[0].totals;
    EXPECT_EQ(totals.unpushed_token_count(), totals.unpushed_step_count() * 20);
    return totals.unpushed_step_count();
  };
  EXPECT_EQ(tell(1, 1, 0, 2), 0) << "nothing was told";
  EXPECT_EQ(tell(1, 2, 5, 0), 5);
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(tell(2, 1, 0, 2), 3);
  EXPECT_EQ(tell(2, 1, 0, 2), 3) << "the answer was lost";
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(tell(3, 1, 0, 2), 3) << "the process between was killed";
  EXPECT_EQ(tell(3, 2, 4, 0), 7);
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(tell(4, 1, 0, 2, /*restored_island_epoch=*/4), 7)
      << "a save of a process that did not leave";
  EXPECT_EQ(tell(4, 2, 6, 0), 13);
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(tell(5, 1, 0, 2, /*restored_island_epoch=*/4), 11);
  run_->CheckLog();
}

TEST_F(RunRecordTest, ARestoreCountsWhatNoRoundHasDecided) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(8);
  spec.set_checkpoint_every_round_count(1);
  Start(spec);
  run_->claims_tokens = true;
  for (int i = 0; i < 2; ++i) Commit();
  run_->PushAll("i0");
  const v1::IslandTotals before = run_->state().members()[0].totals;
  ASSERT_EQ(before.unmerged_step_count(), 0);
  ASSERT_FALSE(run_->machine().observed().index.Seen(0).empty());
  const int64_t seq =
      run_->machine().observed().index.Seen(0).begin()->first.second;
  const int64_t step_count = run_->machine()
                                 .observed()
                                 .index.Seen(0)
                                 .begin()
                                 ->second.info->step_count();
  ASSERT_GT(step_count, 0);
  ASSERT_TRUE(run_->RestoreRun("round-1").ok());
  const v1::IslandTotals& totals = run_->state().members()[0].totals;
  EXPECT_EQ(totals.unmerged_step_count(), step_count);
  EXPECT_GT(totals.unmerged_token_count(), 0);
  EXPECT_EQ(totals.merged_step_count(), before.merged_step_count());
  // The island does not know whether the coordinator had learned of it.
  v1::ReportProgressRequest request;
  *request.add_unpushed() = MakeWork(1, step_count);
  request.mutable_unpushed(0)->set_seq(seq);
  request.mutable_unpushed(0)->set_island_epoch(1);
  request.mutable_unpushed(0)->set_number(1);
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(totals.unpushed_step_count(), 0);
  // Of this one the shards' reports came too late.
  request.mutable_unpushed(0)->set_seq(seq + 1);
  request.mutable_unpushed(0)->set_number(2);
  ASSERT_TRUE(Progress("i0", request).ok());
  EXPECT_EQ(run_->state().members()[0].totals.unpushed_step_count(),
            step_count);
  run_->CheckLog();
}

}  // namespace
}  // namespace atl::coordinator
