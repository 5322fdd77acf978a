#include "coordinator/core/outputs/history.h"

#include <string>

#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// A run with `fragment_count` fragments makes commits. A batch holds one
// record; the trims of all batches are in `trims_`.
class HistoryTest : public RunSimulationTest {
 protected:
  void StartRun(int fragment_count, int64_t keep_round_count) {
    v1::RunSpec spec = SimpleSpec(fragment_count);
    spec.mutable_schedule()->set_round_count(1000);
    spec.mutable_history()->set_keep_round_count(keep_round_count);
    Start(spec);
  }

  // Commits until `commit_seq`, and collects the trims.
  void CommitUntil(int64_t commit_seq) {
    while (run_->state().commit_seq() < commit_seq) {
      for (const char* id : {"i0", "i1"}) {
        for (int32_t f = 0; f < run_->state().fragments().size(); ++f) {
          for (int32_t shard = 0; shard < 2; ++shard) run_->Push(id, f, shard);
        }
      }
      run_->FollowPlans();
    }
    ASSERT_EQ(run_->state().commit_seq(), commit_seq);
  }

  // The trims after a batch with the newest `count` commits.
  Batch TrimsOfNewest(int64_t count) const {
    Batch batch;
    bool is_due = false;
    for (int64_t i = 0; i < count; ++i) {
      storage::v1::Record record;
      record.mutable_round_committed()->mutable_commit()->set_commit_seq(
          run_->state().commit_seq() - i);
      is_due = is_due || EndsTrimStep(record);
    }
    if (is_due) AddTrims(run_->state(), batch);
    return batch;
  }
};

TEST_F(HistoryTest, KeepsEverythingOfAShortRun) {
  StartRun(1, 0);
  CommitUntil(64);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 1);
  EXPECT_TRUE(TrimsOfNewest(1).trims.empty());
}

TEST_F(HistoryTest, OffersTheNewestRoundsAndDeletesOthersAStepLater) {
  StartRun(1, 10);
  CommitUntil(63);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 1);
  CommitUntil(64);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 64 - 10 + 1);
  EXPECT_TRUE(TrimsOfNewest(1).trims.empty());
  CommitUntil(127);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 64 - 10 + 1);
  EXPECT_TRUE(TrimsOfNewest(1).trims.empty());
  CommitUntil(128);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 128 - 10 + 1);
  const Batch batch = TrimsOfNewest(1);
  ASSERT_EQ(batch.trims.size(), 2u);
  EXPECT_EQ(batch.trims[0].run_id, "run");
  EXPECT_EQ(batch.trims[0].table, HistoryTable::kRounds);
  EXPECT_EQ(batch.trims[0].end, 64 - 10 + 1);
  // The round of commit 55 made version 55.
  EXPECT_EQ(batch.trims[1].table, HistoryTable::kEvaluations);
  EXPECT_LE(batch.trims[1].end, 55);
  EXPECT_GE(batch.trims[1].end, 54);
}

TEST_F(HistoryTest, TrimsOnceForABatchThatPassesAStep) {
  StartRun(1, 1);
  CommitUntil(130);
  EXPECT_TRUE(TrimsOfNewest(2).trims.empty());  // 129 and 130.
  const Batch batch = TrimsOfNewest(4);
  ASSERT_EQ(batch.trims.size(), 2u);
  EXPECT_EQ(batch.trims[0].end, 64);
}

TEST_F(HistoryTest, CountsRoundsOfAllFragments) {
  StartRun(4, 10);
  CommitUntil(128);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 128 - 40 + 1);
  const Batch batch = TrimsOfNewest(1);
  ASSERT_FALSE(batch.trims.empty());
  EXPECT_EQ(batch.trims[0].end, 64 - 40 + 1);
  // Commit 25 made version 7 of fragment 0. No such evaluation is trimmed.
  for (const HistoryTrim& trim : batch.trims) {
    if (trim.table == HistoryTable::kEvaluations) {
      EXPECT_LE(trim.end, 7);
    }
  }
}

TEST_F(HistoryTest, KeepsTheRoundsThatAReplayFromAPinNeeds) {
  StartRun(1, 10);
  CommitUntil(20);
  v1::ExportCheckpointRequest request;
  request.set_pin_id("audit");
  request.set_keep_bytes_max(int64_t{1} << 40);
  request.mutable_lease_duration()->set_seconds(24 * 3600);
  ASSERT_TRUE(
      run_->machine().Step(event::Export{request}, run_->now()).ok());
  run_->Flush();
  CommitUntil(128);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 21);
  EXPECT_EQ(TrimsOfNewest(1).trims[0].end, 21);
  request.set_release(true);
  request.clear_keep_bytes_max();
  ASSERT_TRUE(
      run_->machine().Step(event::Export{request}, run_->now()).ok());
  run_->Flush();
  EXPECT_EQ(FirstKeptCommit(run_->state()), 128 - 10 + 1);
}

TEST_F(HistoryTest, KeepsTheRoundsBeforeALogThatTookALostOnesPlace) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(1000);
  spec.mutable_history()->set_keep_round_count(100);
  spec.set_checkpoint_every_round_count(64);
  Start(spec);
  CommitUntil(200);
  EXPECT_EQ(FirstKeptCommit(run_->state()), 93);
  ASSERT_TRUE(run_->machine().Step(event::Supersede{}, run_->now()).ok());
  run_->Flush();
  ASSERT_EQ(run_->state().commit_seq(), 1'000'000'000);
  // The commits from 102 on are the newest 99; the restore is one more number.
  EXPECT_EQ(FirstKeptCommit(run_->state()), 102);
}

}  // namespace
}  // namespace atl::coordinator
