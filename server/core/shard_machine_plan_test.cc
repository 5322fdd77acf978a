// Plans that do not fit what a shard has.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"
#include "server/core/shard_machine.h"
#include "server/core/testing/shard_machine_fixture.h"

namespace atl::server {
namespace {

const std::string& kRun = *new std::string(32, 'a');
const std::string& kOtherRun = *new std::string(32, 'b');

class ShardMachinePlanTest : public ShardMachineTest {
 protected:
  // A shard at version 5 of commit 5, with a checkpoint of version 3.
  void BringToCommit5(const std::string& run_uid = "") {
    run_uid_ = run_uid;
    RecoveredShard disk = Disk(5, 5);
    disk.held = {{0, 3}, {0, 4}, {0, 5}};
    disk.manifests = {{"kept", 3, {{0, 3}}, ""}};
    Restart(disk);
    v1::Pin* pin = plan_.add_pins();
    pin->set_pin_id("kept");
    pin->set_commit_seq(3);
    pin->set_checkpoint(true);
    pin->add_cut()->set_version(3);
  }

  // The plan of a coordinator that knows nothing after commit `seq`.
  void PlanAt(int64_t seq) {
    v1::ServerRunPlan right = plan_;
    plan_.clear_pins();
    plan_.clear_commits();
    plan_.clear_seals();
    plan_.set_commit_seq(seq);
    Plan();
    plan_ = right;
  }

  v1::Fault Fault() { return machine_->Report().fault_detail(); }
};

TEST_F(ShardMachinePlanTest, ARunThatWasCreatedAgainDeletesNothing) {
  BringToCommit5(kRun);
  plan_.set_run_uid(kRun);
  Plan();
  EXPECT_EQ(Trace(), "");
  plan_.set_run_uid(kOtherRun);
  PlanAt(0);
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "OTHER_RUN");
  EXPECT_NE(Fault().expected().find(kRun), std::string::npos);
  EXPECT_NE(Fault().found().find(kOtherRun), std::string::npos);
  EXPECT_EQ(machine_->Report().run_uid(), kRun);
  EXPECT_TRUE(machine_->Holds(0, 3));
  EXPECT_EQ(machine_->plan().run_uid(), kRun);
}

TEST_F(ShardMachinePlanTest, AnotherRunIsNotTakenAsTheFirstPlanEither) {
  BringToCommit5(kRun);
  plan_.set_run_uid(kOtherRun);
  PlanAt(5);
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "OTHER_RUN");
  EXPECT_TRUE(absl::IsUnavailable(machine_->CheckServes()));
}

TEST_F(ShardMachinePlanTest, AShardWithoutARunUidTakesThePlans) {
  for (const std::string& unknown : {std::string(), std::string(32, '0')}) {
    plan_.Clear();
    BringToCommit5(unknown);
    plan_.set_run_uid(kRun);
    Plan();
    EXPECT_EQ(machine_->fault(), "");
    EXPECT_EQ(machine_->Report().run_uid(), kRun);
    plan_.set_run_uid("");  // A coordinator of an older version.
    Plan();
    EXPECT_EQ(machine_->fault(), "");
    EXPECT_EQ(machine_->Report().run_uid(), kRun);
    plan_.set_run_uid(kOtherRun);
    Plan();
    EXPECT_EQ(Fault().code(), "OTHER_RUN");
  }
}

TEST_F(ShardMachinePlanTest, AnotherLayoutIsAnotherRun) {
  BringToCommit5();
  plan_.set_run_id("run");
  plan_.set_run_epoch(1);
  plan_.set_layout_fingerprint(kFingerprint + 1);
  machine_->OnPlan(plan_);
  EXPECT_EQ(Fault().code(), "OTHER_RUN");
}

TEST_F(ShardMachinePlanTest, AnOlderCopyOfTheCoordinatorDeletesNothing) {
  BringToCommit5();
  Plan();
  EXPECT_EQ(Trace(), "");
  PlanAt(2);
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "PLAN_BEHIND");
  EXPECT_NE(Fault().expected().find("commit 5"), std::string::npos);
  EXPECT_NE(Fault().found().find("commit 2"), std::string::npos);
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 5);
  EXPECT_EQ(machine_->Report().checkpoints_size(), 1);
  EXPECT_TRUE(machine_->Holds(0, 3));
}

TEST_F(ShardMachinePlanTest, APlanThatCommitsAVersionAgainIsBehind) {
  BringToCommit5();
  Commit(6, 0, 5, 500, {});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "PLAN_BEHIND");
  EXPECT_NE(Fault().expected().find("version 5 of fragment 0"),
            std::string::npos);
}

// The right coordinator is back, and nothing had changed here.
TEST_F(ShardMachinePlanTest, ARightPlanEndsAFaultOfPlans) {
  for (const bool other_run : {true, false}) {
    plan_.Clear();
    BringToCommit5(kRun);
    plan_.set_run_uid(kRun);
    Plan();
    Trace();
    plan_.set_run_uid(other_run ? kOtherRun : kRun);
    PlanAt(2);
    Trace();
    ASSERT_TRUE(machine_->has_stopped());
    plan_.set_run_uid(kRun);
    Commit(6, 1, 1, 5, {});
    Plan();
    EXPECT_FALSE(machine_->has_stopped());
    EXPECT_EQ(machine_->Report().fault(), "");
    EXPECT_FALSE(machine_->Report().has_fault_detail());
    EXPECT_EQ(Trace(),
              "apply fragment 1 version 1 commit 6\n"
              "persist fragment 1 version 1 commit 6");
  }
}

TEST_F(ShardMachinePlanTest, ButNoOtherFault) {
  BringToCommit5();
  Plan();
  machine_->OnVersionDamaged(0, 5, "f0-v5.ver");
  PlanAt(2);
  Plan();
  EXPECT_EQ(machine_->fault(), "DATA_LOSS: f0-v5.ver");
}

TEST_F(ShardMachinePlanTest, AnOlderCopyOfTheDirectoryIsNamedUntilARestart) {
  BringToCommit5();
  Commit(8, 0, 8, 800, {});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
  EXPECT_EQ(Fault().expected(), "commit 7");
  EXPECT_NE(Fault().found().find("commit 5"), std::string::npos);
  EXPECT_NE(Fault().found().find("older copy"), std::string::npos);
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 5);
  plan_.clear_commits();
  plan_.set_commit_seq(5);
  Plan();
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
}

TEST_F(ShardMachinePlanTest, APlanWithoutTheCommitsThatItCountsFindsItToo) {
  BringToCommit5();
  plan_.set_commit_seq(9);
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
  EXPECT_EQ(Fault().expected(), "commit 9");
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 5);
}

// The plan bridges what is missing, so the shard would merge again what its
// islands no longer have.
TEST_F(ShardMachinePlanTest, WhatTheShardHasAcknowledgedIsNotMergedAgain) {
  for (const bool acknowledged : {false, true}) {
    plan_.Clear();
    BringToCommit5();
    machine_->OnStored(Info(0, 5), 1.0);
    Seal(5, 0, {0});
    Commit(6, 0, 6, 600, {0});
    Commit(7, 1, 1, 700, {});
    plan_.set_acknowledged_commit_seq(acknowledged ? 7 : 5);
    Plan();
    if (!acknowledged) {
      EXPECT_EQ(Trace(), "prepare fragment 0 version 5 attempt 0 of 1");
      continue;
    }
    EXPECT_EQ(Trace(), "");
    EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
    EXPECT_EQ(Fault().expected(), "commit 7, which it has acknowledged");
    EXPECT_NE(Fault().found().find("commit 5"), std::string::npos);
    // Its checkpoint is still reported: a restore may need it.
    EXPECT_EQ(machine_->Report().checkpoints_size(), 1);
  }
}

TEST_F(ShardMachinePlanTest, ACommitThatLeavesAVersionOutIsBehindIt) {
  BringToRound0();
  Commit(1, 0, 2, 200, {});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
  EXPECT_NE(Fault().expected().find("version 1 of fragment 0"),
            std::string::npos);
  EXPECT_NE(Fault().found().find("version 0"), std::string::npos);
}

TEST_F(ShardMachinePlanTest, AnEmptyDirectoryOfAStartedRunMakesNoVersion0) {
  plan_.set_started(true);
  plan_.set_commit_seq(12);
  Commit(12, 0, 12, 1200, {});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
  EXPECT_EQ(Fault().expected(), "commit 11");
  EXPECT_NE(Fault().found().find("no version"), std::string::npos);
  EXPECT_FALSE(machine_->Report().initialized());
}

TEST_F(ShardMachinePlanTest, AnEmptyDirectoryOfAShardThatHadCommitsIsBehind) {
  plan_.set_started(true);
  Commit(1, 0, 1, 200, {0});
  plan_.set_acknowledged_commit_seq(1);
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
}

TEST_F(ShardMachinePlanTest, AnEmptyDirectoryIsMadeAgainIfNothingIsMissing) {
  plan_.set_started(true);
  Plan();
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
  Restart({});
  Commit(1, 0, 1, 200, {0});
  Plan();
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
  EXPECT_EQ(machine_->fault(), "");
}

TEST_F(ShardMachinePlanTest, CommitsWhoseContributionsAreGoneAreLostData) {
  Restart(Disk(5, 5));
  Seal(5, 0, {0});
  Commit(6, 0, 6, 600, {0});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(Fault().code(), "DATA_LOSS");
  EXPECT_NE(Fault().found().find("commit 6"), std::string::npos);
}

TEST_F(ShardMachinePlanTest, AnImportThatIsGoneIsNotWaitedFor) {
  Restart({}, /*import=*/true);
  Plan();
  EXPECT_EQ(machine_->fault(), "");
  plan_.set_started(true);
  Plan();
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
  RecoveredShard disk;
  disk.imported = {0};
  Restart(disk, /*import=*/true);
  Plan();
  EXPECT_EQ(machine_->fault(), "");
}

TEST_F(ShardMachinePlanTest, AnotherVersion0ThanTheDecidedOneIsLostData) {
  plan_.set_started(true);
  v1::FragmentVersion* version = plan_.add_version0();
  version->mutable_digest()->set_low(100);
  Plan();
  EXPECT_EQ(Trace(), "make-version-0 fragment 0 version 0");
  machine_->OnVersion0(0, {Digest128{0, 100}});
  EXPECT_EQ(machine_->fault(), "");
  Restart({});
  Plan();
  machine_->OnVersion0(0, {Digest128{0, 101}});
  EXPECT_EQ(Fault().code(), "DATA_LOSS");
  EXPECT_NE(Fault().expected().find("version 0 of fragment 0"),
            std::string::npos);
}

TEST_F(ShardMachinePlanTest, CallsForAnotherRunAreRefusedByName) {
  BringToCommit5(kRun);
  Plan();
  EXPECT_TRUE(machine_->CheckRun("").ok());
  EXPECT_TRUE(machine_->CheckRun(kRun).ok());
  v1::PushHeader push;
  push.set_run_uid(kOtherRun);
  v1::ImportHeader import;
  import.set_run_uid(kOtherRun);
  for (const absl::Status& refused :
       {machine_->CheckRun(kOtherRun), machine_->AdmitPush(push, ""),
        machine_->AdmitImport(import).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    ASSERT_TRUE(GetReason(refused).has_value()) << refused;
    EXPECT_EQ(GetReason(refused)->reason, "OTHER_RUN");
    EXPECT_NE(refused.message().find(kRun), std::string::npos);
    EXPECT_NE(refused.message().find(kOtherRun), std::string::npos);
  }
}

// --- A restore --------------------------------------------------------------

// The plan after a restore to version 3, with run_epoch 2.
v1::ServerRunPlan RestoredPlan(const v1::ServerRunPlan& before) {
  v1::ServerRunPlan plan = before;
  plan.set_run_epoch(2);
  plan.set_commit_seq(before.commit_seq() + 1);
  plan.mutable_restored()->set_commit_seq(plan.commit_seq());
  plan.mutable_restored()->set_pin_id("kept");
  plan.mutable_restored()->add_cut()->set_version(3);
  plan.mutable_restored()->add_cut()->set_fragment(1);
  return plan;
}

TEST_F(ShardMachinePlanTest, ARestoreIsNotTakenByAMachineOfTheEarlierEpoch) {
  BringToCommit5();
  Plan();
  EXPECT_FALSE(machine_->NeedsRestore(plan_));
  const v1::ServerRunPlan restored = RestoredPlan(plan_);
  EXPECT_TRUE(machine_->NeedsRestore(restored));
  machine_->OnPlan(restored);
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(machine_->run_epoch(), 1);
  EXPECT_EQ(machine_->fault(), "");
  EXPECT_TRUE(machine_->Holds(0, 5));
}

TEST_F(ShardMachinePlanTest, AShardThatHasStoppedNeedsTheRestoreToo) {
  BringToCommit5();
  Plan();
  const v1::ServerRunPlan restored = RestoredPlan(plan_);
  PlanAt(9);
  EXPECT_EQ(Fault().code(), "SHARD_BEHIND");
  EXPECT_TRUE(machine_->NeedsRestore(restored));
}

TEST_F(ShardMachinePlanTest, AnotherRunsRestoreIsNotForThisShard) {
  BringToCommit5(kRun);
  plan_.set_run_uid(kRun);
  Plan();
  v1::ServerRunPlan restored = RestoredPlan(plan_);
  restored.set_run_uid(kOtherRun);
  EXPECT_FALSE(machine_->NeedsRestore(restored));
  machine_->OnPlan(restored);
  EXPECT_EQ(Fault().code(), "OTHER_RUN");
}

TEST_F(ShardMachinePlanTest, AMachineAtTheCutTakesThePlanAndKeepsItsPins) {
  BringToCommit5();
  Plan();
  v1::ServerRunPlan restored = RestoredPlan(plan_);
  RecoveredShard disk = Disk(3, restored.commit_seq());
  disk.run_epoch = 2;
  disk.held = {{0, 2}, {0, 3}};
  disk.manifests = {{"kept", 3, {{0, 3}}, ""}};
  Restart(disk);
  EXPECT_FALSE(machine_->NeedsRestore(restored));
  machine_->OnPlan(restored);
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(machine_->fault(), "");
  const v1::ShardReport report = machine_->Report();
  EXPECT_EQ(report.run_epoch(), 2);
  EXPECT_EQ(report.persisted_commit_seq(), restored.commit_seq());
  ASSERT_EQ(report.checkpoints_size(), 1);
  EXPECT_TRUE(report.checkpoints(0).durable());
}

TEST_F(ShardMachinePlanTest, AFailedRestoreIsReportedUnderItsEpochUntilAnother) {
  BringToCommit5();
  Plan();
  v1::ServerRunPlan restored = RestoredPlan(plan_);
  RecoveredShard disk = Disk(5, 5);
  disk.failed_run_epoch = 2;
  Restart(disk);
  v1::Fault fault;
  fault.set_code("DATA_LOSS");
  machine_->OnFault(fault);
  EXPECT_FALSE(machine_->NeedsRestore(restored));
  machine_->OnPlan(restored);
  EXPECT_EQ(Trace(), "");
  EXPECT_EQ(machine_->Report().run_epoch(), 2);
  EXPECT_EQ(Fault().code(), "DATA_LOSS");
  // Callers of the new run_epoch get nothing of the earlier one.
  EXPECT_EQ(machine_->run_epoch(), 1);
  EXPECT_TRUE(
      absl::IsUnavailable(machine_->CheckPlace(2, 0, kFingerprint, 1)));
  restored.set_run_epoch(3);
  EXPECT_TRUE(machine_->NeedsRestore(restored));
}

}  // namespace
}  // namespace atl::server
