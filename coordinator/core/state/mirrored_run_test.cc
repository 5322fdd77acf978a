// A run that continues from its manifest has the state that a restore in place
// gives, except for the numbers that jump.

#include "coordinator/core/state/mirrored_run.h"

#include <string>

#include "absl/time/time.h"
#include "base/time/proto_time.h"
#include "coordinator/core/outputs/history.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr char kUid[] = "0123456789abcdef0123456789abcdef";

class MirroredRunTest : public RunSimulationTest {
 protected:
  // A run of five rounds, of which the mirror has round-4.
  void SetUp() override {
    v1::RunSpec spec = SimpleSpec(2);
    spec.mutable_schedule()->set_round_count(6);
    spec.set_checkpoint_every_round_count(2);
    spec.mutable_checkpoint()->set_mirror(true);
    Start(spec);
    run_->makes_copies = true;
    for (int i = 0; run_->fragment(1).newest.version() < 5 && i < 100; ++i) {
      for (const char* id : {"i0", "i1"}) run_->PushAll(id);
      run_->FollowPlans();
    }
    run_->FollowPlans();
    const auto work = run_->machine().FindMirrorWork();
    ASSERT_TRUE(work.has_value());
    manifest_ = work->manifest;
    ASSERT_EQ(manifest_.pin().pin_id(), "round-4");
    manifest_.set_run_uid(kUid);
    manifest_.clear_parts();
  }

  static storage::v1::Record Record(const storage::v1::RunCreated& created) {
    storage::v1::Record record;
    record.set_revision(1);
    *record.mutable_time() = ToProto(absl::FromUnixSeconds(2'000'000));
    *record.mutable_run_created() = created;
    return record;
  }

  RunState Continue() {
    RunState state;
    const auto created =
        ContinueRun(manifest_, absl::FromUnixSeconds(2'000'000));
    EXPECT_TRUE(created.ok()) << created.status();
    if (!created.ok()) return state;
    const absl::Status applied = state.Apply(Record(*created));
    EXPECT_TRUE(applied.ok()) << applied;
    return state;
  }

  std::string Refused() {
    const absl::Status status =
        ContinueRun(manifest_, absl::FromUnixSeconds(2'000'000)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  storage::v1::MirrorManifest manifest_;
};

TEST_F(MirroredRunTest, ItIsTheStateThatARestoreGives) {
  const RunState state = Continue();
  ASSERT_TRUE(run_->RestoreRun("round-4").ok());
  const RunState& restored = run_->state();
  EXPECT_EQ(state.MakeRestorePoint().DebugString(),
            restored.MakeRestorePoint().DebugString());
  EXPECT_EQ(state.spec().DebugString(), restored.spec().DebugString());
  EXPECT_EQ(state.version0().size(), restored.version0().size());
  for (int f = 0; f < 2; ++f) {
    EXPECT_EQ(state.version0()[f].DebugString(),
              restored.version0()[f].DebugString());
    EXPECT_EQ(state.fragments()[f].newest.DebugString(),
              restored.fragments()[f].newest.DebugString());
    EXPECT_EQ(state.restored_cut()[f].DebugString(),
              restored.restored_cut()[f].DebugString());
    EXPECT_EQ(state.fragments()[f].phase, RoundPhase::kIdle);
  }
  EXPECT_EQ(state.merged_token_count(), restored.merged_token_count());
  EXPECT_EQ(state.restores().back().cut_commit_seq(),
            restored.restores().back().cut_commit_seq());
  EXPECT_TRUE(state.just_restored());
  EXPECT_TRUE(state.started());
  // These numbers jump.
  EXPECT_EQ(restored.run_epoch(), 2);
  EXPECT_EQ(state.run_epoch(), 1 + kEpochJump);
  EXPECT_EQ(state.commit_seq(), kSeqJump);
  EXPECT_EQ(state.state(), v1::RUN_STATE_STARTING);
  EXPECT_EQ(state.run_uid(), kUid);
  // The checkpoint is the only pin, and is copied again.
  ASSERT_EQ(state.pins().size(), 1u);
  const v1::Pin& pin = state.pins().at("round-4").pin_set().pin();
  EXPECT_EQ(pin.mirror().run_epoch(), 1);
  EXPECT_FALSE(IsMirrored(pin));
}

TEST_F(MirroredRunTest, MembersKeepTheirSlotsAndNoKeyIsUsedTwice) {
  const RunState state = Continue();
  ASSERT_EQ(state.members().size(), 2u);
  for (const Member& is : state.members()) {
    const Member& was = run_->state().members()[is.record.slot()];
    EXPECT_EQ(is.record.island_id(), was.record.island_id());
    EXPECT_FALSE(is.present());
    EXPECT_EQ(is.record.session_sha256(), "");
    EXPECT_EQ(is.record.island_epoch(),
              was.record.island_epoch() + kEpochJump);
    for (int32_t f = 0; f < 2; ++f) {
      EXPECT_GT(is.record.next_seq(), run_->fragment(f).newest.version());
    }
  }
}

TEST_F(MirroredRunTest, AMemberIsAwaySinceTheLoss) {
  const RunState state = Continue();
  for (const Member& member : state.members()) {
    EXPECT_EQ(member.record.state(), v1::ISLAND_STATE_LOST);
    EXPECT_EQ(member.set_time, absl::FromUnixSeconds(2'000'000));
  }
}

TEST_F(MirroredRunTest, AnIslandThatTookASlotSinceTheCutSkipsNoData) {
  manifest_.mutable_point()->clear_local_positions();
  for (const int64_t position : {50, 7}) {
    manifest_.mutable_point()->add_local_positions(position);
  }
  manifest_.mutable_members(0)->set_local_position(2);  // Of another island.
  manifest_.mutable_members(1)->set_local_position(9);
  const RunState state = Continue();
  EXPECT_EQ(state.members()[0].local_position, 2);
  EXPECT_EQ(state.members()[1].local_position, 7);
}

TEST_F(MirroredRunTest, ARunThatIsLostAgainBeforeItsNextCheckpointJumpsAgain) {
  const absl::Time now = absl::FromUnixSeconds(2'000'000);
  const auto first = ContinueRun(manifest_, now);
  ASSERT_TRUE(first.ok()) << first.status();
  const v1::Restore& reached = first->mirrored().restore();
  const auto second = ContinueRun(
      manifest_, now,
      {.run_epoch = reached.run_epoch(), .commit_seq = reached.commit_seq()});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->run_epoch(), first->run_epoch() + kEpochJump);
  EXPECT_EQ(second->mirrored().restore().run_epoch(), second->run_epoch());
  EXPECT_EQ(second->mirrored().restore().commit_seq(), 2 * kSeqJump);
  EXPECT_EQ(second->mirrored().pin().mirror().run_epoch(), 1);
  for (int slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(second->mirrored().members(slot).member().island_epoch(),
              first->mirrored().members(slot).member().island_epoch() +
                  kEpochJump);
  }
}

TEST_F(MirroredRunTest, ASnapshotOfItLosesNothing) {
  const RunState state = Continue();
  RunState again;
  ASSERT_TRUE(again.Restore(state.ToSnapshot(), state.revision()).ok());
  EXPECT_EQ(again.ToSnapshot().DebugString(),
            state.ToSnapshot().DebugString());
}

TEST_F(MirroredRunTest, ReadersAreOfferedNoRoundThatItsLogLacks) {
  const RunState state = Continue();
  EXPECT_EQ(FirstKeptCommit(state), state.commit_seq() + 1);
}

TEST_F(MirroredRunTest, AManifestThatContradictsItselfIsRefused) {
  const storage::v1::MirrorManifest good = manifest_;
  const auto refused = [&](auto change) {
    manifest_ = good;
    change(manifest_);
    return Refused();
  };
  EXPECT_THAT(refused([](auto& m) { m.set_format(2); }), HasSubstr("format 2"));
  EXPECT_THAT(refused([](auto& m) { m.clear_started(); }),
              HasSubstr("version 0"));
  EXPECT_THAT(refused([](auto& m) { m.set_run_uid("x"); }),
              HasSubstr("run_uid"));
  EXPECT_THAT(refused([](auto& m) { m.set_run_epoch(0); }),
              HasSubstr("run_epoch"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_pin()->clear_cut(); }),
              HasSubstr("cut"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_point()->clear_fragments(); }),
              HasSubstr("cut"));
  EXPECT_THAT(refused([](auto& m) {
                m.mutable_pin()->mutable_cut(0)->set_version(-1);
              }),
              HasSubstr("out of range"));
  EXPECT_THAT(refused([](auto& m) {
                m.mutable_members(0)->mutable_member()->set_slot(1);
              }),
              HasSubstr("order"));
  EXPECT_THAT(refused([](auto& m) {
                m.mutable_members(0)->mutable_member()->set_island_epoch(
                    INT64_MAX);
              }),
              HasSubstr("island_epoch"));
  EXPECT_THAT(refused([](auto& m) {
                m.mutable_members(1)->mutable_member()->set_island_id("i0");
              }),
              HasSubstr("two members i0"));
  EXPECT_THAT(refused([](auto& m) {
                m.mutable_point()->set_fragment_token_count(-1);
              }),
              HasSubstr("token count"));
  EXPECT_THAT(refused([](auto& m) {
                m.mutable_point()->add_data_positions()->set_position(
                    INT64_MAX);
              }),
              HasSubstr("data position"));
  refused([](auto& m) { m.set_run_id("../run"); });
  refused([](auto& m) {
    m.mutable_spec()->mutable_layout()->set_fragment_count(1 << 30);
  });
}

}  // namespace
}  // namespace atl::coordinator
