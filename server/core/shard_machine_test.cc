// Traces of the machine: events in, actions out, one line each.

#include "server/core/shard_machine.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/core/testing/shard_machine_fixture.h"

namespace atl::server {
namespace {

TEST_F(ShardMachineTest, AReportOfChangesNamesAContributionOnceEachTime) {
  BringToRound0();
  EXPECT_EQ(machine_->Report(1, /*takes_changes=*/true).stored_size(), 2);
  v1::ShardReport report = machine_->Report(2, true);
  EXPECT_EQ(report.base_report_seq(), 1);
  EXPECT_EQ(report.stored_size() + report.refused_size() + report.gone_size(),
            0);
  EXPECT_TRUE(report.initialized());
  machine_->OnStored(Info(2, 0), 3.0);
  machine_->OnRefused(Info(1, 0), "a value is not finite");
  report = machine_->Report(3, true);
  EXPECT_EQ(report.base_report_seq(), 2);
  ASSERT_EQ(report.stored_size(), 1);
  EXPECT_EQ(report.stored(0).info().key().slot(), 2);
  ASSERT_EQ(report.refused_size(), 1);
  EXPECT_EQ(report.gone_size(), 0);
  // A commit that is applied, then persisted, ends it once.
  Seal(0, 0, {0});
  Commit(1, 0, 1, 200, {0});
  Plan();
  machine_->NextActions();
  machine_->OnPrepared(Prepared(0, 200));
  machine_->NextActions();
  report = machine_->Report(4, true);
  ASSERT_EQ(report.gone_size(), 1);
  EXPECT_EQ(report.gone(0).slot(), 0);
  machine_->OnPersisted(1);
  report = machine_->Report(5, true);
  EXPECT_EQ(report.persisted_commit_seq(), 1);
  EXPECT_EQ(report.gone_size(), 0);
  // A lost one is gone, and comes again.
  machine_->OnLost(Key(2, 0), "a block is damaged");
  EXPECT_EQ(machine_->Report(6, true).gone_size(), 1);
  machine_->OnStored(Info(2, 0), 3.0);
  EXPECT_EQ(machine_->Report(7, true).stored_size(), 1);
  // After a report that may not be there, and to an older coordinator.
  machine_->ReportWhole();
  report = machine_->Report(8, true);
  EXPECT_EQ(report.base_report_seq(), 0);
  EXPECT_EQ(report.stored_size(), 1);
  EXPECT_EQ(report.refused_size(), 1);
  EXPECT_EQ(machine_->Report(9, false).base_report_seq(), 0);
}

TEST_F(ShardMachineTest, DoesNothingBeforeAPlan) {
  EXPECT_EQ(Trace(), "");
  EXPECT_FALSE(machine_->Report().initialized());
}

TEST_F(ShardMachineTest, MeasuresBeforeAVerdictAndPreparesWithIt) {
  judged_ = true;
  Restart({});
  BringToRound0();
  Seal(0, 0, {0, 1, 2});
  Plan();
  EXPECT_EQ(Trace(), "");  // Slot 2 is not stored.
  machine_->OnStored(Info(2, 0), 1.0);
  EXPECT_EQ(Trace(), "measure fragment 0 version 0 attempt 0 of 3");
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(machine_->Report().statistics_size(), 0);
  machine_->OnMeasured({0, 0, 0, {"gram"}});
  EXPECT_EQ(Trace(), "");
  ASSERT_EQ(machine_->Report().statistics_size(), 1);
  EXPECT_EQ(machine_->Report().statistics(0).grams(0), "gram");
  plan_.mutable_seals(0)->mutable_verdict()->add_rows();
  Plan();
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 3");
  EXPECT_EQ(actions_[0].seal.verdict().rows_size(), 1);
  EXPECT_EQ(machine_->Report().statistics_size(), 0);
}

TEST_F(ShardMachineTest, MeasuresTheNextAttemptAnew) {
  judged_ = true;
  Restart({});
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnMeasured({0, 0, 0, {"old"}});
  plan_.clear_seals();
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(machine_->Report().statistics_size(), 0);
  Seal(0, 1, {0});
  Plan();
  EXPECT_EQ(Trace(), "measure fragment 0 version 0 attempt 1 of 1");
}

TEST_F(ShardMachineTest, AFailedMeasureIsNamedAgain) {
  judged_ = true;
  Restart({});
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnFailed(actions_[0], absl::FailedPreconditionError("not now"));
  EXPECT_EQ(Trace(), "measure fragment 0 version 0 attempt 0 of 2");
}

// A restart finds the verdict in the plan and needs no statistics.
TEST_F(ShardMachineTest, PreparesAtOnceIfTheVerdictIsThere) {
  judged_ = true;
  Restart({});
  BringToRound0();
  Seal(0, 0, {0, 1});
  plan_.mutable_seals(0)->mutable_verdict();
  Plan();
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 2");
}

TEST_F(ShardMachineTest, MakesVersion0OfWhatItHoldsOnce) {
  Plan();
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
  EXPECT_EQ(Trace(), "");
  machine_->OnVersion0(0, {Digest128{0, 100}, 9.5});
  const v1::ShardReport report = machine_->Report();
  EXPECT_TRUE(report.initialized());
  ASSERT_EQ(report.version0_digests_size(), 2);
  EXPECT_EQ(report.version0_digests(0).low(), 100);
  EXPECT_EQ(report.version0_digests(1).low(), 0);
  EXPECT_THAT(report.version0_norms_squared(), testing::ElementsAre(9.5, 0));
}

TEST_F(ShardMachineTest, TriesVersion0AgainWhenTheDiskWasFull) {
  Plan();
  Trace();
  machine_->OnFailed(actions_[0], absl::ResourceExhaustedError("full"));
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
}

TEST_F(ShardMachineTest, AnImportBecomesVersion0WhenItIsStored) {
  Restart({}, /*import=*/true);
  Plan();
  EXPECT_EQ(Trace(), "");
  machine_->OnImported(0);
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
  EXPECT_EQ(Trace(), "");
  EXPECT_FALSE(machine_->Report().initialized());
  machine_->OnVersion0(0, {Digest128{0, 100}});
  EXPECT_TRUE(machine_->Report().initialized());
}

TEST_F(ShardMachineTest, AnImportThatAStartFindsStoredBecomesVersion0) {
  RecoveredShard disk;
  disk.imported = {0};
  Restart(disk, /*import=*/true);
  Plan();
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
}

TEST_F(ShardMachineTest, ARoundFromSealToPersisted) {
  BringToRound0();
  EXPECT_EQ(machine_->Report().stored_size(), 2);
  Seal(0, 0, {0, 1});
  Plan();
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 2");
  EXPECT_EQ(Trace(), "");
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(Trace(), "");
  ASSERT_EQ(machine_->Report().prepared_size(), 1);
  EXPECT_EQ(machine_->Report().prepared(0).digest().low(), 200);

  Commit(1, 0, 1, 200, {0, 1});
  Plan();
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 1 commit 1\n"
            "persist fragment 0 version 1 commit 1");
  EXPECT_EQ(actions_[1].keys.size(), 2);
  // Applied, so no longer reported, but not persisted.
  EXPECT_EQ(machine_->version(0), 1);
  EXPECT_EQ(machine_->Report().stored_size(), 0);
  EXPECT_EQ(machine_->Report().prepared_size(), 0);
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 0);
  machine_->OnPersisted(1);
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 1);
  EXPECT_EQ(Trace(), "");
}

TEST_F(ShardMachineTest, WaitsForASealedContributionThatIsNotHere) {
  BringToRound0();
  Seal(0, 0, {0, 1, 2});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_NE(machine_->waiting_reason().find("slot 2"), std::string::npos);
  machine_->OnStored(Info(2, 0), 1.0);
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 3");
  EXPECT_EQ(machine_->waiting_reason(), "");
}

TEST_F(ShardMachineTest, StopsIfASealNamesAnotherDigestThanItHolds) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  plan_.mutable_seals(0)->mutable_contributions(1)->mutable_digest()->set_low(
      8);
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_NE(machine_->Report().fault().find("DATA_LOSS"), std::string::npos);
}

TEST_F(ShardMachineTest, AnAbortThrowsThePreparedMergeAway) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnPrepared(Prepared(0, 200));
  plan_.clear_seals();
  Seal(0, 1, {0});
  Plan();
  EXPECT_EQ(Trace(),
            "discard fragment 0 version 1\n"
            "prepare fragment 0 version 0 attempt 1 of 1");
}

TEST_F(ShardMachineTest, AnAbortDuringTheMergeIsSeenWhenItEnds) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  plan_.clear_seals();
  Plan();
  EXPECT_EQ(Trace(), "");
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(Trace(), "discard fragment 0 version 1");
  EXPECT_EQ(machine_->Report().prepared_size(), 0);
}

TEST_F(ShardMachineTest, TheNewestAttemptIsPreparedWhateverTheirOrder) {
  for (const bool newest_first : {true, false}) {
    plan_.clear_seals();
    Restart({});
    BringToRound0();
    if (newest_first) Seal(0, 1, {0});
    Seal(0, 0, {0, 1});
    if (!newest_first) Seal(0, 1, {0});
    Plan();
    EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 1 of 1");
  }
}

// The second seal is committed before this shard hears of the abort.
TEST_F(ShardMachineTest, ACommitOfAnotherAttemptIsPreparedFirst) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnPrepared(Prepared(0, 200));
  plan_.clear_seals();
  Seal(0, 1, {0});
  Commit(1, 0, 1, 200, {0}, /*attempt=*/1);
  Plan();
  EXPECT_EQ(Trace(),
            "discard fragment 0 version 1\n"
            "prepare fragment 0 version 0 attempt 1 of 1");
  machine_->OnPrepared(Prepared(0, 200, 1));
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 1 commit 1\n"
            "persist fragment 0 version 1 commit 1");
}

TEST_F(ShardMachineTest, WhatIsPreparedAfterItsVersionIsOverIsNoNews) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Commit(1, 0, 1, 200, {0, 1});
  Plan();
  Trace();
  machine_->OnPrepared(Prepared(0, 200));
  Trace();
  ASSERT_EQ(machine_->version(0), 1);
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(machine_->Report().prepared_size(), 0);
}

TEST_F(ShardMachineTest, AMergeThatIsNotFiniteIsReportedAndNotApplied) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  PreparedFact fact = Prepared(0, 200);
  fact.finite = false;
  machine_->OnPrepared(fact);
  ASSERT_EQ(machine_->Report().prepared_size(), 1);
  EXPECT_FALSE(machine_->Report().prepared(0).finite());
  EXPECT_EQ(Trace(), "");
}

TEST_F(ShardMachineTest, CommitsOfAFragmentThatIsNotHereArePersistedInOrder) {
  BringToRound0();
  Commit(1, 1, 1, 5, {});
  Seal(0, 0, {0, 1});
  Commit(2, 0, 1, 200, {0, 1});
  Plan();
  EXPECT_EQ(Trace(),
            "apply fragment 1 version 1 commit 1\n"
            "prepare fragment 0 version 0 attempt 0 of 2\n"
            "persist fragment 1 version 1 commit 1");
  machine_->OnPersisted(1);
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 1);
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 1 commit 2\n"
            "persist fragment 0 version 1 commit 2");
}

TEST_F(ShardMachineTest, StopsIfTheCommitHasAnotherDigest) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnPrepared(Prepared(0, 200));
  Commit(1, 0, 1, 201, {0, 1});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_NE(machine_->Report().fault().find("DATA_LOSS"), std::string::npos);
}

// --- Restarts at each step --------------------------------------------------

TEST_F(ShardMachineTest, ARestartAfterStoredReportsItAgain) {
  RecoveredShard disk = Disk(0, 0);
  disk.stored = {{Info(0, 0), 1.5}};
  Restart(disk);
  Plan();
  EXPECT_EQ(Trace(), "");
  ASSERT_EQ(machine_->Report().stored_size(), 1);
  EXPECT_EQ(machine_->Report().stored(0).norm_squared(), 1.5);
}

TEST_F(ShardMachineTest, ARestartAfterPreparedMergesAgain) {
  RecoveredShard disk = Disk(0, 0);
  disk.stored = {{Info(0, 0), 1.0}, {Info(1, 0), 2.0}};
  disk.prepared = {Prepared(0, 200)};
  Restart(disk);
  Seal(0, 0, {0, 1});
  Plan();
  EXPECT_EQ(machine_->Report().prepared_size(), 0);
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 2");
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(machine_->Report().prepared_size(), 1);
}

TEST_F(ShardMachineTest, WhatADiskHasPreparedForAnotherVersionIsNotReported) {
  for (const int64_t version : {0, 1}) {
    RecoveredShard disk = Disk(1, 1);
    disk.prepared = {Prepared(version, 200)};
    disk.prepared_here = {0};
    Restart(disk);
    EXPECT_EQ(machine_->Report().prepared_size(), version == 1 ? 1 : 0);
  }
}

TEST_F(ShardMachineTest, AMergeThatComesOutDifferentTheSecondTimeStopsIt) {
  RecoveredShard disk = Disk(0, 0);
  disk.stored = {{Info(0, 0), 1.0}, {Info(1, 0), 2.0}};
  disk.prepared = {Prepared(0, 200)};
  Restart(disk);
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnPrepared(Prepared(0, 201));
  EXPECT_NE(machine_->fault().find("DATA_LOSS"), std::string::npos);
  EXPECT_EQ(machine_->Report().prepared_size(), 0);
}

TEST_F(ShardMachineTest, ARestartAfterCommitRedoesTheCommitsInOrder) {
  RecoveredShard disk = Disk(3, 7);
  disk.stored = {{Info(0, 3), 1.0}, {Info(0, 4), 1.0}};
  Restart(disk);
  Seal(3, 0, {0});
  Seal(4, 1, {0});
  Commit(7, 0, 3, 300, {0});  // Persisted here, but not everywhere.
  Commit(8, 0, 4, 400, {0});
  Commit(9, 0, 5, 500, {0}, /*attempt=*/1);
  Plan();
  EXPECT_EQ(Trace(), "prepare fragment 0 version 3 attempt 0 of 1");
  machine_->OnPrepared(Prepared(3, 400));
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 4 commit 8\n"
            "prepare fragment 0 version 4 attempt 1 of 1\n"
            "persist fragment 0 version 4 commit 8");
  machine_->OnPrepared(Prepared(4, 500, 1));
  EXPECT_EQ(Trace(), "apply fragment 0 version 5 commit 9");
  machine_->OnPersisted(8);
  EXPECT_EQ(Trace(), "persist fragment 0 version 5 commit 9");
  machine_->OnPersisted(9);
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 9);
}

TEST_F(ShardMachineTest, ARestartAfterStateHasNothingToDo) {
  RecoveredShard disk = Disk(1, 1);
  Restart(disk);
  Seal(0, 0, {0});
  Commit(1, 0, 1, 200, {0});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 1);
}

// --- Space ------------------------------------------------------------------

TEST_F(ShardMachineTest, WhatIsLostBeforeItsCommitIsWaitedForAndMergedThen) {
  BringToRound0();
  Seal(0, 0, {0, 1});
  Plan();
  Trace();
  machine_->OnLost(Key(1, 0), "why");
  machine_->OnFailed(actions_[0], absl::UnavailableError("lost"));
  EXPECT_EQ(Trace(), "");
  EXPECT_NE(machine_->waiting_reason().find("slot 1"), std::string::npos);
  EXPECT_EQ(machine_->Report().fault(), "");
  EXPECT_EQ(machine_->Report().stored_size(), 1);
  machine_->OnStored(Info(1, 0), 2.0);
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 2");
}

TEST_F(ShardMachineTest, WhatIsLostAfterItsCommitStopsTheShard) {
  RecoveredShard disk = Disk(0, 0);
  disk.stored = {{Info(0, 0), 1.0}};
  disk.lost = {{Key(1, 0), "3.seg is missing"}};
  Restart(disk);
  Seal(0, 0, {0, 1});
  Commit(1, 0, 1, 200, {0, 1});
  Plan();
  EXPECT_EQ(Trace(), "");
  const std::string fault = machine_->Report().fault();
  EXPECT_NE(fault.find("DATA_LOSS: commit 1"), std::string::npos) << fault;
  EXPECT_NE(fault.find("slot 1"), std::string::npos) << fault;
  EXPECT_NE(fault.find("3.seg is missing"), std::string::npos) << fault;
}

TEST_F(ShardMachineTest, ACancelledRunKeepsWhatACommitStillNeeds) {
  BringToRound0();
  Seal(0, 0, {0});
  Commit(1, 0, 1, 200, {0});
  plan_.set_run_state(v1::RUN_STATE_CANCELLED);
  Plan();
  EXPECT_EQ(Trace(),
            "prepare fragment 0 version 0 attempt 0 of 1\n"
            "drop " +
                Key(1, 0).ToString());
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 1 commit 1\n"
            "persist fragment 0 version 1 commit 1");
}

// Nobody will push the rest, and no plan will give it an outcome.
TEST_F(ShardMachineTest, ARunThatHasEndedKeepsNoPartOfAContribution) {
  for (const auto state :
       {v1::RUN_STATE_CANCELLED, v1::RUN_STATE_COMPLETED}) {
    plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    Restart({});
    BringToRound0();
    *plan_.add_dropped()->mutable_key() = Info(0, 0).key();
    *plan_.add_dropped()->mutable_key() = Info(1, 0).key();
    Plan();
    machine_->NextActions();
    machine_->OnBound(Info(2, 0));
    machine_->OnBound(Info(3, 0));
    machine_->OnRefused(Info(3, 0), "NaN");
    machine_->OnStored(Info(4, 0), 1.0);
    EXPECT_EQ(Trace(), "");
    plan_.set_run_state(state);
    Plan();
    const std::string whole =
        Key(3, 0).ToString() + ", " + Key(4, 0).ToString();
    if (state == v1::RUN_STATE_CANCELLED) {
      EXPECT_EQ(Trace(), "drop " + Key(2, 0).ToString() + ", " + whole +
                             "\ndrop-spares");
    } else {
      // The plan still gives the outcome of complete contributions.
      EXPECT_EQ(Trace(),
                "drop " + Key(2, 0).ToString() + "\ndrop-spares");
      *plan_.add_dropped()->mutable_key() = Info(3, 0).key();
      *plan_.add_dropped()->mutable_key() = Info(4, 0).key();
      Plan();
      EXPECT_EQ(Trace(), "drop " + whole + "\ndrop-spares");
    }
    EXPECT_EQ(machine_->Report().refused_size(), 0);
    plan_.clear_dropped();
  }
}

TEST_F(ShardMachineTest, AfterTheRunsEndTooPartsEndWithTheirCommit) {
  for (const auto state :
       {v1::RUN_STATE_CANCELLED, v1::RUN_STATE_COMPLETED}) {
    plan_.Clear();
    Restart({});
    BringToRound0();
    machine_->OnBound(Info(2, 0));
    Seal(0, 0, {0, 1});
    Commit(1, 0, 1, 200, {0, 1, 2});
    plan_.set_run_state(state);
    Plan();
    EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 2");
    machine_->OnPrepared(Prepared(0, 200));
    EXPECT_EQ(Trace(),
              "apply fragment 0 version 1 commit 1\n"
              "persist fragment 0 version 1 commit 1");
    EXPECT_EQ(actions_[1].keys.size(), 3);
  }
}

TEST_F(ShardMachineTest, ARunThatHasEndedLetsGoOfItsSparesWhenAllIsDone) {
  BringToRound0();
  Seal(0, 0, {0});
  Commit(1, 0, 1, 200, {0});
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  *plan_.add_dropped()->mutable_key() = Info(1, 0).key();
  Plan();
  EXPECT_EQ(Trace(), "prepare fragment 0 version 0 attempt 0 of 1\ndrop " +
                         Key(1, 0).ToString());
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 1 commit 1\n"
            "persist fragment 0 version 1 commit 1");
  machine_->OnPersisted(1);
  EXPECT_EQ(Trace(), "drop-spares");
  EXPECT_EQ(Trace(), "");
  // Freed after that.
  machine_->OnBound(Info(2, 0));
  EXPECT_EQ(Trace(), "drop " + Key(2, 0).ToString() + "\ndrop-spares");
}

TEST_F(ShardMachineTest, SoDoesOneThatNoPlanHasAnyMore) {
  machine_->OnUnplanned();  // Since the start.
  EXPECT_EQ(Trace(), "drop-spares");
  BringToRound0();
  EXPECT_EQ(Trace(), "");
  EXPECT_TRUE(machine_->OnUnplanned());
  EXPECT_FALSE(machine_->OnUnplanned());
  EXPECT_EQ(Trace(), "drop-spares");
  EXPECT_EQ(Trace(), "");
}

TEST_F(ShardMachineTest, ReservesSpaceForAnOpenRoundOnce) {
  BringToRound0();
  plan_.add_members()->set_slot(0);
  plan_.add_members()->set_slot(1);
  plan_.add_open_rounds()->set_version(0);
  Plan();
  EXPECT_EQ(Trace(), "reserve fragment 0 version 0 for 2");
  Plan();
  EXPECT_EQ(Trace(), "");
}

TEST_F(ShardMachineTest, ReservesNothingForARoundOfAnotherVersion) {
  RecoveredShard disk = Disk(1, 1);
  Restart(disk);
  plan_.add_members()->set_slot(0);
  for (const int64_t version : {0, 2}) {
    plan_.clear_open_rounds();
    plan_.add_open_rounds()->set_version(version);
    Plan();
    EXPECT_EQ(Trace(), "");
  }
}

// kPersist frees it and records the decision.
TEST_F(ShardMachineTest, WhatIsDecidedIsNotDroppedHoweverOldItIs) {
  max_staleness_ = 3;
  RecoveredShard disk = Disk(9, 9);
  disk.prepared = {Prepared(9, 1000)};
  disk.prepared_here = {0};
  disk.stored = {{Info(1, 4), 1.0}};
  Restart(std::move(disk));
  Seal(9, 0, {0});
  Commit(10, 0, 10, 1000, {0});
  *plan_.mutable_commits(0)->add_outcomes()->mutable_key() = Info(1, 4).key();
  Plan();
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 10 commit 10\n"
            "persist fragment 0 version 10 commit 10");
  EXPECT_EQ(actions_[1].keys, std::vector<ContributionKey>{Key(1, 4)});
}

// Newer versions may make it too old before its first report.
TEST_F(ShardMachineTest, WhatIsStoredIsReportedHoweverOldUntilThePlanEndsIt) {
  max_staleness_ = 3;
  RecoveredShard disk = Disk(9, 9);
  disk.stored = {{Info(1, 1), 1.0}};
  Restart(std::move(disk));
  Plan();
  EXPECT_EQ(Trace(), "");
  ASSERT_EQ(machine_->Report().stored_size(), 1);
  *plan_.add_dropped()->mutable_key() = Info(1, 1).key();
  Plan();
  EXPECT_EQ(Trace(), "drop " + Key(1, 1).ToString());
  EXPECT_EQ(machine_->Report().stored_size(), 0);
}

TEST_F(ShardMachineTest, DropsWhatThePlanSaysWasNotMerged) {
  BringToRound0();
  *plan_.add_dropped()->mutable_key() = Info(1, 0).key();
  Plan();
  EXPECT_EQ(Trace(), "drop epoch 1 fragment 0 slot 1 seq 1");
  EXPECT_EQ(machine_->Report().stored_size(), 1);
  Plan();
  EXPECT_EQ(Trace(), "");
}

TEST_F(ShardMachineTest, DropsWhatARevokedIslandHasUnlessItIsSealed) {
  RecoveredShard disk = Disk(5, 5);
  disk.stored = {{Info(0, 5), 1.0}, {Info(1, 5), 1.0}};
  disk.partial = {Info(1, 4)};
  disk.refused[Key(1, 6)] = {"why", 5};
  Restart(disk);
  Seal(5, 0, {0, 1});
  plan_.add_revoked_slots(1);
  plan_.set_run_state(v1::RUN_STATE_PAUSED);
  Plan();
  EXPECT_EQ(Trace(),
            "prepare fragment 0 version 5 attempt 0 of 2\n"
            "drop epoch 1 fragment 0 slot 1 seq 5, "
            "epoch 1 fragment 0 slot 1 seq 7");
  // A stream that was admitted before the plan.
  machine_->OnBound(Info(1, 3));
  EXPECT_EQ(Trace(), "drop epoch 1 fragment 0 slot 1 seq 4");
  plan_.clear_seals();
  Plan();
  EXPECT_EQ(Trace(), "drop epoch 1 fragment 0 slot 1 seq 6");
  EXPECT_EQ(machine_->Report().stored_size(), 1);
}

TEST_F(ShardMachineTest, ReleasesOldVersionsThatNoPinNames) {
  RecoveredShard disk = Disk(5, 5);
  disk.held = {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}};
  Restart(disk);
  v1::FragmentVersion* pinned = plan_.add_pins()->add_cut();
  pinned->set_version(2);
  Plan();
  EXPECT_EQ(Trace(),
            "release fragment 0 version 1\n"
            "release fragment 0 version 3");
  EXPECT_EQ(machine_->Report().held_for_pins(), 1);
  plan_.clear_pins();
  Plan();
  EXPECT_EQ(Trace(), "release fragment 0 version 2");
  EXPECT_EQ(machine_->Report().held_for_pins(), 0);
}

TEST_F(ShardMachineTest, AManifestIsDeletedBeforeTheVersionsThatItNames) {
  RecoveredShard disk = Disk(5, 5);
  disk.held = {{0, 2}, {0, 3}, {0, 4}, {0, 5}};
  Restart(disk);
  v1::Pin* pin = plan_.add_pins();
  pin->set_pin_id("kept");
  pin->set_checkpoint(true);
  pin->add_cut()->set_version(2);
  Plan();
  EXPECT_EQ(Trace(),
            "write-manifest kept\n"
            "release fragment 0 version 3");
  machine_->OnManifestWritten("kept");
  ASSERT_EQ(machine_->Report().checkpoints_size(), 1);
  EXPECT_TRUE(machine_->Report().checkpoints(0).durable());
  plan_.clear_pins();
  Plan();
  EXPECT_EQ(Trace(), "drop-manifest kept");
  EXPECT_EQ(Trace(), "");
  machine_->OnManifestDropped("kept");
  EXPECT_EQ(Trace(), "release fragment 0 version 2");
}

TEST_F(ShardMachineTest, AnOldVersionThatIsDamagedStopsNothingTheNewestAll) {
  Restart(Disk(3, 3));
  machine_->OnVersionDamaged(0, 2, "f0-v2.ver: Input/output error");
  EXPECT_EQ(machine_->fault(), "");
  machine_->OnVersionDamaged(0, 3, "f0-v3.ver: Input/output error");
  EXPECT_EQ(machine_->fault(), "DATA_LOSS: f0-v3.ver: Input/output error");
}

TEST_F(ShardMachineTest, ACheckpointThatCannotBeKeptStopsNothing) {
  RecoveredShard disk = Disk(5, 5);
  Restart(disk);
  v1::Pin* pin = plan_.add_pins();
  pin->set_pin_id("lost");
  pin->set_checkpoint(true);
  pin->add_cut()->set_version(2);
  Plan();
  EXPECT_EQ(Trace(), "write-manifest lost");
  machine_->OnFailed(actions_[0], absl::DataLossError("f0-v2.ver"));
  EXPECT_EQ(machine_->Report().fault(), "");
  EXPECT_NE(machine_->Report().checkpoints(0).fault().find("f0-v2.ver"),
            std::string::npos);
}

TEST_F(ShardMachineTest, KeepsWhatCommitsMergeFromAPinsOwnToItsEnd) {
  BringToRound0();
  for (int64_t seq = 1; seq <= 4; ++seq) Commit(seq, 1, seq, 5, {});
  v1::Pin* pin = plan_.add_pins();
  pin->set_commit_seq(2);
  pin->set_keep_bytes_max(100);
  pin->set_keep_end(4);
  Plan();
  EXPECT_EQ(Trace(),
            "apply fragment 1 version 1 commit 1\n"
            "apply fragment 1 version 2 commit 2\n"
            "apply fragment 1 version 3 commit 3\n"
            "apply fragment 1 version 4 commit 4\n"
            "persist fragment 1 version 1 commit 1");
  machine_->OnPersisted(1);
  EXPECT_EQ(Trace(), "persist fragment 1 version 2 commit 2 kept");
  machine_->OnPersisted(2);
  EXPECT_EQ(Trace(), "persist fragment 1 version 3 commit 3 kept");
  machine_->OnPersisted(3);
  EXPECT_EQ(Trace(), "persist fragment 1 version 4 commit 4");
  machine_->OnPersisted(4);
  EXPECT_EQ(machine_->Report().held_for_pins(), 2);
  pin->set_keep_end(3);
  Plan();
  EXPECT_EQ(Trace(), "drop-kept of commits 3");
  plan_.clear_pins();
  Plan();
  EXPECT_EQ(Trace(), "drop-kept of commits 2");
  EXPECT_EQ(machine_->Report().held_for_pins(), 0);
}

}  // namespace
}  // namespace atl::server
