// Traces of the machine: events in, actions out, one line each.

#include "server/core/shard_machine.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr uint64_t kFingerprint = 0xfeed;

// A shard of a run of one fragment that it holds alone, and of a second one of
// which it has no block.
class ShardMachineTest : public testing::Test {
 protected:
  ShardMachineTest() { Restart({}); }

  // --- Verbs ----------------------------------------------------------------

  void Restart(RecoveredShard recovered, bool import = false) {
    ShardShape shape;
    shape.import = import;
    shape.run_id = "run";
    shape.shard = 1;
    shape.layout_fingerprint = kFingerprint;
    shape.fragments = {{true, true}, {false, false}};
    shape.judged = judged_;
    shape.max_staleness = max_staleness_;
    if (recovered.versions.empty()) {
      recovered.versions = {-1, 0};
      recovered.version0_digests.resize(2);
    }
    machine_.emplace(shape, std::move(recovered));
  }

  // Everything that the machine asks for now.
  std::string Trace() {
    actions_ = machine_->NextActions();
    return absl::StrJoin(actions_, "\n", [](std::string* out, const auto& a) {
      *out += a.ToString();
    });
  }

  void Plan() {
    plan_.set_run_id("run");
    plan_.set_run_epoch(1);
    plan_.set_shard(1);
    plan_.set_layout_fingerprint(kFingerprint);
    plan_.set_placement_epoch(1);
    if (plan_.run_state() == v1::RUN_STATE_UNSPECIFIED) {
      plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    }
    machine_->OnPlan(plan_);
  }

  static v1::ContributionInfo Info(int32_t slot, int64_t version,
                                   uint64_t digest = 7) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(version + 1);
    info.set_anchor_version(version);
    info.mutable_digest()->set_low(digest);
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(1);
    return info;
  }
  static ContributionKey Key(int32_t slot, int64_t version) {
    return ContributionKey::FromProto(Info(slot, version).key());
  }

  void Seal(int64_t version, int64_t attempt, std::vector<int32_t> slots) {
    v1::Seal* seal = plan_.add_seals();
    seal->set_version(version);
    seal->set_attempt(attempt);
    for (const int32_t slot : slots) {
      v1::SealedContribution* sealed = seal->add_contributions();
      *sealed->mutable_key() = Info(slot, version).key();
      *sealed->mutable_digest() = Info(slot, version).digest();
    }
  }

  void Commit(int64_t seq, int32_t fragment, int64_t new_version,
              uint64_t digest, std::vector<int32_t> slots,
              int64_t attempt = 0) {
    v1::Commit* commit = plan_.add_commits();
    commit->set_commit_seq(seq);
    commit->set_fragment(fragment);
    commit->set_version(new_version);
    commit->set_attempt(attempt);
    commit->mutable_digest()->set_low(digest);
    for (const int32_t slot : slots) {
      *commit->add_outcomes()->mutable_key() =
          Info(slot, new_version - 1).key();
    }
    plan_.set_commit_seq(seq);
  }

  static PreparedFact Prepared(int64_t version, uint64_t digest,
                               int64_t attempt = 0) {
    PreparedFact fact;
    fact.version = version;
    fact.attempt = attempt;
    fact.digest.low = digest;
    return fact;
  }

  // A shard that holds version 0 and the contributions of two slots.
  void BringToRound0() {
    Plan();
    machine_->NextActions();
    machine_->OnVersion0(0, Digest128{0, 100});
    machine_->OnStored(Info(0, 0), 1.0);
    machine_->OnStored(Info(1, 0), 2.0);
  }

  // What a disk has after version `version` was persisted at commit `seq`.
  static RecoveredShard Disk(int64_t version, int64_t seq) {
    RecoveredShard disk;
    disk.run_epoch = 1;
    disk.persisted_commit_seq = seq;
    disk.versions = {version, 0};
    disk.version0_digests = {Digest128{0, 100}, Digest128{}};
    disk.held = {{0, version}};
    return disk;
  }

  bool judged_ = false;  // For the next Restart.
  int64_t max_staleness_ = 0;  // The same.
  v1::ServerRunPlan plan_;
  std::optional<ShardMachine> machine_;
  std::vector<Action> actions_;
};

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

// A start finds the verdict in the plan and needs no statistics.
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
  machine_->OnVersion0(0, Digest128{0, 100});
  const v1::ShardReport report = machine_->Report();
  EXPECT_TRUE(report.initialized());
  ASSERT_EQ(report.version0_digests_size(), 2);
  EXPECT_EQ(report.version0_digests(0).low(), 100);
  EXPECT_EQ(report.version0_digests(1).low(), 0);
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
  machine_->OnVersion0(0, Digest128{0, 100});
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
  // Applied: nothing of it is reported any more. Not persisted yet.
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

TEST_F(ShardMachineTest, StopsIfACommitLeavesAVersionOut) {
  BringToRound0();
  Commit(1, 0, 2, 200, {});
  Plan();
  EXPECT_EQ(Trace(), "");
  EXPECT_NE(machine_->fault(), "");
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

// Nobody brings the rest of it, and nobody says how it ended.
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
    EXPECT_EQ(Trace(), "");
    plan_.set_run_state(state);
    if (state == v1::RUN_STATE_COMPLETED) {
      *plan_.add_dropped()->mutable_key() = Info(3, 0).key();
    }
    Plan();
    EXPECT_EQ(Trace(), "drop " + Key(2, 0).ToString() + ", " +
                           Key(3, 0).ToString());
    EXPECT_EQ(machine_->Report().refused_size(), 0);
    plan_.clear_dropped();
  }
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

TEST_F(ShardMachineTest, DropsWhatThePlanSaysWasNotMerged) {
  BringToRound0();
  *plan_.add_dropped()->mutable_key() = Info(1, 0).key();
  Plan();
  EXPECT_EQ(Trace(), "drop epoch 1 fragment 0 slot 1 seq 1");
  EXPECT_EQ(machine_->Report().stored_size(), 1);
  Plan();
  EXPECT_EQ(Trace(), "");
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
  disk.held = {{0, 2}, {0, 4}, {0, 5}};
  Restart(disk);
  v1::Pin* pin = plan_.add_pins();
  pin->set_pin_id("kept");
  pin->set_checkpoint(true);
  pin->add_cut()->set_version(2);
  Plan();
  EXPECT_EQ(Trace(), "write-manifest kept");
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

TEST_F(ShardMachineTest, APinAloneMovesThePersistedNumber) {
  BringToRound0();
  plan_.set_commit_seq(1);
  plan_.add_pins()->set_commit_seq(1);
  Plan();
  EXPECT_EQ(machine_->Report().persisted_commit_seq(), 1);
}

// --- Admission --------------------------------------------------------------

class AdmissionTest : public ShardMachineTest {
 protected:
  AdmissionTest() {
    v1::PlanMember* member = plan_.add_members();
    member->set_slot(0);
    member->set_island_epoch(3);
    member->set_session_sha256("secret-hash");
    Plan();
    machine_->NextActions();
    machine_->OnVersion0(0, Digest128{});
    header_.set_run_id("run");
    header_.set_island_epoch(3);
    header_.set_layout_fingerprint(kFingerprint);
    header_.set_placement_epoch(1);
    header_.set_shard(1);
    *header_.mutable_info() = Info(0, 0);
  }

  absl::StatusCode Admit(const std::string& secret = "secret-hash") {
    return machine_->AdmitPush(header_, secret).code();
  }

  v1::PushHeader header_;
};

using Code = absl::StatusCode;

TEST_F(AdmissionTest, AMemberMayPush) { EXPECT_EQ(Admit(), Code::kOk); }

TEST_F(AdmissionTest, OlderEpochsAreAbortedNewerOnesNotKnownYet) {
  header_.set_island_epoch(2);
  EXPECT_EQ(Admit(), Code::kAborted);
  header_.set_island_epoch(4);
  EXPECT_EQ(Admit(), Code::kUnavailable);
  header_.set_island_epoch(3);
  header_.set_placement_epoch(0);
  EXPECT_EQ(Admit(), Code::kAborted) << "0 is no wildcard in a push";
  header_.set_placement_epoch(2);
  EXPECT_EQ(Admit(), Code::kUnavailable);
  header_.set_placement_epoch(1);
  header_.mutable_info()->mutable_key()->set_run_epoch(2);
  EXPECT_EQ(Admit(), Code::kUnavailable);
  header_.mutable_info()->mutable_key()->set_run_epoch(0);
  EXPECT_EQ(Admit(), Code::kAborted);
}

TEST_F(AdmissionTest, StrangersAreTurnedAway) {
  EXPECT_EQ(Admit("wrong"), Code::kUnauthenticated);
  EXPECT_EQ(Admit(""), Code::kUnauthenticated);
  header_.mutable_info()->mutable_key()->set_slot(1);
  EXPECT_EQ(Admit(), Code::kFailedPrecondition);
}

TEST_F(AdmissionTest, AnotherLayoutOrShardIsAborted) {
  header_.set_layout_fingerprint(1);
  EXPECT_EQ(Admit(), Code::kAborted);
  header_.set_layout_fingerprint(kFingerprint);
  header_.set_shard(0);
  EXPECT_EQ(Admit(), Code::kAborted);
}

TEST_F(AdmissionTest, NonsenseIsInvalid) {
  const v1::ContributionInfo good = header_.info();
  const auto with = [&](auto change) {
    *header_.mutable_info() = good;
    change(header_.mutable_info());
    return Admit();
  };
  EXPECT_EQ(with([](auto* i) { i->mutable_key()->set_fragment(-1); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->mutable_key()->set_fragment(2); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->mutable_key()->set_fragment(1); }),
            Code::kInvalidArgument)
      << "no block of it is here";
  EXPECT_EQ(with([](auto* i) { i->mutable_key()->set_seq(0); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->mutable_key()->set_seq(INT64_MAX); }),
            Code::kInvalidArgument)
      << "the next one would not be a number";
  EXPECT_EQ(with([](auto* i) { i->set_data_end(INT64_MAX); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->set_codec(v1::CODEC_UNSPECIFIED); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->set_step_count(0); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->set_token_count(-1); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->set_anchor_version(-1); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->set_data_begin(5); }),
            Code::kInvalidArgument);
}

TEST_F(AdmissionTest, AKeyIsBoundByItsFirstHeader) {
  machine_->OnBound(header_.info());
  EXPECT_EQ(Admit(), Code::kOk);
  header_.mutable_info()->mutable_digest()->set_low(8);
  EXPECT_EQ(Admit(), Code::kAborted);
  machine_->OnStored(Info(0, 0), 1.0);
  EXPECT_EQ(Admit(), Code::kAborted);
  *header_.mutable_info() = Info(0, 0);
  EXPECT_EQ(Admit(), Code::kOk);
}

TEST_F(AdmissionTest, WhatIsPushedAgainIsWhatWasSealed) {
  machine_->OnStored(Info(0, 0), 1.0);
  Seal(0, 0, {0});
  Plan();
  machine_->OnLost(Key(0, 0), "why");
  EXPECT_EQ(Admit(), Code::kOk);
  *header_.mutable_info() = Info(0, 0, /*digest=*/8);
  EXPECT_EQ(Admit(), Code::kAborted);
}

TEST_F(AdmissionTest, ARefusedKeyStaysRefused) {
  machine_->OnRefused(Info(0, 0), "NaN");
  EXPECT_EQ(Admit(), Code::kInvalidArgument);
  ASSERT_EQ(machine_->Report().refused_size(), 1);
  EXPECT_EQ(machine_->Report().refused(0).reason(), "NaN");
  // Of which round it is, the coordinator reads from that.
  EXPECT_TRUE(machine_->Report().refused(0).has_anchor_version());
  EXPECT_EQ(machine_->Report().refused(0).anchor_version(), 0);
}

TEST_F(AdmissionTest, AnAnchorOfTheFutureIsNotKnownYet) {
  *header_.mutable_info() = Info(0, 1);
  EXPECT_EQ(Admit(), Code::kUnavailable);
}

TEST_F(AdmissionTest, WhatIsDecidedIsAborted) {
  machine_->OnStored(Info(0, 0), 1.0);
  Seal(0, 0, {0});
  Plan();
  machine_->NextActions();
  machine_->OnPrepared(Prepared(0, 200));
  Commit(1, 0, 1, 200, {0});
  Plan();
  machine_->NextActions();
  EXPECT_EQ(Admit(), Code::kAborted);
  machine_->OnPersisted(1);
  EXPECT_EQ(Admit(), Code::kAborted);
}

TEST_F(AdmissionTest, AnchorsOfAnAsyncRunMayBeOlder) {
  max_staleness_ = 3;
  RecoveredShard disk = Disk(9, 9);
  disk.stored = {{Info(0, 4), 1.0}, {Info(0, 5), 1.0}, {Info(0, 6), 1.0}};
  Restart(std::move(disk));
  Plan();
  // Those that may count, and, to be recorded as STALE, the one before.
  EXPECT_EQ(Trace(), "drop " + Key(0, 4).ToString());
  *header_.mutable_info() = Info(0, 4);
  EXPECT_EQ(Admit(), Code::kAborted);
  *header_.mutable_info() = Info(0, 5);
  EXPECT_EQ(Admit(), Code::kOk);
}

TEST_F(AdmissionTest, ARunThatIsNotActiveTakesNothing) {
  for (const auto state : {v1::RUN_STATE_STARTING, v1::RUN_STATE_COMPLETED,
                           v1::RUN_STATE_CANCELLED}) {
    plan_.set_run_state(state);
    Plan();
    EXPECT_EQ(Admit(), Code::kFailedPrecondition);
  }
  plan_.set_run_state(v1::RUN_STATE_PAUSED);
  Plan();
  EXPECT_EQ(Admit(), Code::kOk);
}

TEST_F(AdmissionTest, ASlotCannotHoldManyUndecidedContributions) {
  for (int64_t seq = 1; seq <= 4; ++seq) {
    v1::ContributionInfo info = Info(0, 0);
    info.mutable_key()->set_seq(seq);
    *header_.mutable_info() = info;
    EXPECT_EQ(Admit(), Code::kOk);
    machine_->OnBound(info);
  }
  header_.mutable_info()->mutable_key()->set_seq(5);
  EXPECT_EQ(Admit(), Code::kResourceExhausted);
}

// Else one member makes every report of the server too large to be sent.
TEST_F(AdmissionTest, ASlotCannotHoldManyRefusedContributions) {
  for (int64_t seq = 1; seq <= 4; ++seq) {
    v1::ContributionInfo info = Info(0, 0);
    info.mutable_key()->set_seq(seq);
    *header_.mutable_info() = info;
    EXPECT_EQ(Admit(), Code::kOk);
    machine_->OnBound(info);
    machine_->OnRefused(info, "NaN");
  }
  header_.mutable_info()->mutable_key()->set_seq(5);
  EXPECT_EQ(Admit(), Code::kResourceExhausted);
  // Once they are decided there is room again.
  for (int64_t seq = 1; seq <= 4; ++seq) {
    v1::ContributionOutcome* dropped = plan_.add_dropped();
    *dropped->mutable_key() = header_.info().key();
    dropped->mutable_key()->set_seq(seq);
  }
  Plan();
  machine_->NextActions();
  EXPECT_EQ(Admit(), Code::kOk);
}

TEST_F(AdmissionTest, BeforeAPlanEverythingIsUnavailable) {
  Restart({});
  EXPECT_EQ(Admit(), Code::kUnavailable);
  EXPECT_EQ(machine_->AdmitImport(v1::ImportHeader()).status().code(),
            Code::kUnavailable);
}

TEST_F(AdmissionTest, OneImportMayBeginAndIsKnownAgain) {
  v1::ImportHeader header;
  header.set_layout_fingerprint(kFingerprint);
  header.set_shard(1);
  header.mutable_digest()->set_low(100);
  EXPECT_EQ(machine_->AdmitImport(header).status().code(),
            Code::kInvalidArgument)
      << "the run does not import";
  Restart({}, /*import=*/true);
  Plan();
  EXPECT_EQ(machine_->AdmitImport(header).value_or(true), false);
  machine_->OnVersion0(0, Digest128{0, 100});
  EXPECT_EQ(machine_->AdmitImport(header).value_or(false), true);
  header.mutable_digest()->set_low(101);
  EXPECT_EQ(machine_->AdmitImport(header).status().code(),
            Code::kAlreadyExists);
}

}  // namespace
}  // namespace atl::server
