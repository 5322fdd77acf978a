#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/core/shard_machine.h"
#include "server/core/testing/shard_machine_fixture.h"

namespace atl::server {
namespace {

class AdmissionTest : public ShardMachineTest {
 protected:
  AdmissionTest() {
    v1::PlanMember* member = plan_.add_members();
    member->set_slot(0);
    member->set_island_epoch(3);
    member->set_session_sha256("secret-hash");
    Plan();
    machine_->NextActions();
    machine_->OnVersion0(0, {Digest128{}});
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

TEST_F(AdmissionTest, APushGoesOnForAsLongAsItsSlotIsAMembers) {
  EXPECT_TRUE(machine_->CheckMember(0).ok());
  EXPECT_EQ(machine_->CheckMember(1).code(), Code::kFailedPrecondition);
  plan_.clear_members();
  Plan();
  EXPECT_EQ(machine_->CheckMember(0).code(), Code::kFailedPrecondition);
}

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
  constexpr int64_t kMost = int64_t{1} << 53;
  EXPECT_EQ(with([](auto* i) { i->set_token_count(kMost); }), Code::kOk);
  EXPECT_EQ(with([](auto* i) { i->set_token_count(kMost + 1); }),
            Code::kInvalidArgument);
  EXPECT_EQ(with([](auto* i) { i->set_step_count(kMost + 1); }),
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
  // The coordinator finds the round by the anchor version.
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
  disk.partial = {Info(0, 4), Info(0, 5), Info(0, 6)};
  Restart(std::move(disk));
  Plan();
  // Kept: those that may count, and the one before, to be recorded as STALE.
  EXPECT_EQ(Trace(), "drop " + Key(0, 4).ToString());
  *header_.mutable_info() = Info(0, 4);
  EXPECT_EQ(Admit(), Code::kAborted);
  *header_.mutable_info() = Info(0, 5);
  EXPECT_EQ(Admit(), Code::kOk);
  header_.mutable_info()->mutable_key()->set_seq(99);
  EXPECT_EQ(Admit(), Code::kOk);
  header_.mutable_info()->set_anchor_version(4);
  EXPECT_EQ(Admit(), Code::kAborted);
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

TEST_F(AdmissionTest, WhatIsDecidedAndNotPersistedTakesNoRoomOfItsSlot) {
  for (int64_t seq = 1; seq <= 4; ++seq) {
    v1::ContributionInfo info = Info(0, 0);
    info.mutable_key()->set_seq(seq);
    machine_->OnStored(info, 1.0);
  }
  header_.mutable_info()->mutable_key()->set_seq(5);
  EXPECT_EQ(Admit(), Code::kResourceExhausted);
  Seal(0, 0, {0});
  Commit(1, 0, 1, 200, {0});
  Plan();
  Trace();
  machine_->OnPrepared(Prepared(0, 200));
  EXPECT_EQ(Trace(),
            "apply fragment 0 version 1 commit 1\n"
            "persist fragment 0 version 1 commit 1");
  EXPECT_EQ(Admit(), Code::kOk);
}

class UndecidedTotalTest : public AdmissionTest {
 protected:
  // `slot_count` members, all pushing to fragment 0.
  void Start(int slot_count) {
    plan_.clear_members();
    for (int32_t slot = 0; slot < slot_count; ++slot) {
      v1::PlanMember* member = plan_.add_members();
      member->set_slot(slot);
      member->set_island_epoch(3);
      member->set_session_sha256("secret-hash");
    }
    plan_.set_slot_count(slot_count);
  }
  // Islands of one token.
  void Enrol(int32_t begin, int32_t end) {
    v1::TokenSlots* token = plan_.add_tokens();
    for (int32_t slot = begin; slot < end; ++slot) token->add_slots(slot);
  }
  // Binds contributions of a slot until one is refused. Returns how many.
  int Fill(int32_t slot) {
    for (int count = 0;; ++count) {
      v1::ContributionInfo info = Info(slot, 0);
      info.mutable_key()->set_seq(1 + count);
      *header_.mutable_info() = info;
      if (!machine_->AdmitPush(header_, "secret-hash").ok()) return count;
      machine_->OnBound(info);
    }
  }
};

TEST_F(UndecidedTotalTest, TheIslandsOfATokenHaveOneTogether) {
  for (const auto state : {v1::RUN_STATE_ACTIVE, v1::RUN_STATE_PAUSED}) {
    Restart(Disk(0, 0));
    plan_.clear_tokens();
    plan_.set_run_state(state);
    Start(7);
    Enrol(0, 5);
    Enrol(5, 6);
    Plan();
    int count = 0;
    for (int32_t slot = 0; slot < 5; ++slot) count += Fill(slot);
    // 2 n + 2, reached by the first three slots, and the first one of the last
    // two.
    EXPECT_EQ(count, 14);
    EXPECT_EQ(Fill(5), 4) << "another token";
    EXPECT_EQ(Fill(6), 4) << "no token";
  }
}

TEST_F(UndecidedTotalTest, AnIslandThatIsGoneLeavesNoRoomToItsToken) {
  Restart(Disk(0, 0));
  Start(3);
  Enrol(0, 3);
  Plan();
  EXPECT_EQ(Fill(0), 4);
  EXPECT_EQ(Fill(1), 4);
  plan_.mutable_members()->DeleteSubrange(0, 2);
  Plan();
  EXPECT_EQ(Fill(2), 1);
}

TEST_F(UndecidedTotalTest, TheRunHasOne) {
  Restart(Disk(0, 0));
  Start(20);
  Plan();
  int count = 0;
  for (int32_t slot = 0; slot < 20; ++slot) count += Fill(slot);
  EXPECT_EQ(count, 2 * 20 + 16 + 6) << "six slots have only their first one";
}

TEST_F(UndecidedTotalTest, APlanOfAnOlderCoordinatorHasNone) {
  Restart(Disk(0, 0));
  Start(20);
  plan_.set_slot_count(0);
  Plan();
  for (int32_t slot = 0; slot < 20; ++slot) EXPECT_EQ(Fill(slot), 4);
}

// Streams that begin at once are admitted before any key is bound.
TEST_F(UndecidedTotalTest, KeysThatAreBeingBoundCount) {
  Restart(Disk(0, 0));
  Start(1);
  Plan();
  const auto key = [this](int64_t seq) {
    header_.mutable_info()->mutable_key()->set_seq(seq);
    return ContributionKey::FromProto(header_.info().key());
  };
  for (int64_t seq = 1; seq <= 4; ++seq) machine_->OnOpening(key(seq));
  machine_->OnOpening(key(4));
  key(5);
  EXPECT_EQ(Admit(), Code::kResourceExhausted);
  machine_->OnOpened(key(4));
  key(5);
  EXPECT_EQ(Admit(), Code::kResourceExhausted) << "another stream binds it";
  machine_->OnOpened(key(4));
  key(5);
  EXPECT_EQ(Admit(), Code::kOk);
}

// Otherwise one member makes every report of the server too large to be sent.
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
  machine_->OnVersion0(0, {Digest128{0, 100}});
  EXPECT_EQ(machine_->AdmitImport(header).value_or(false), true);
  header.mutable_digest()->set_low(101);
  EXPECT_EQ(machine_->AdmitImport(header).status().code(),
            Code::kAlreadyExists);
  for (const int32_t fragment : {-1, 1, 2}) {
    header.set_fragment(fragment);
    EXPECT_EQ(machine_->AdmitImport(header).status().code(),
              Code::kInvalidArgument)
        << fragment;
  }
}

}  // namespace
}  // namespace atl::server
