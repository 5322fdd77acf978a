#include "coordinator/core/slot_reuse.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(1);
const absl::Duration kAbsentMin = kGoneLeases * kLease;

v1::RunSpec ShortLeases(v1::RunSpec spec) {
  spec.mutable_schedule()->mutable_lease_duration()->set_seconds(1);
  return spec;
}

class SlotReuseTest : public RunSimulationTest {
 protected:
  std::optional<int32_t> Find() const {
    return FindReusableSlot(run_->state(), run_->machine().observed(),
                            run_->now(), kAbsentMin);
  }
  void PassAbsence() { run_->Pass(kAbsentMin + absl::Seconds(1)); }
};

TEST_F(SlotReuseTest, FindsTheIslandThatHasBeenGoneLongest) {
  Start(ShortLeases(ElasticSpec()), 4);
  EXPECT_EQ(Find(), std::nullopt);
  ASSERT_TRUE(run_->Leave("i2").ok());
  run_->Pass(absl::Seconds(2));
  ASSERT_TRUE(run_->Leave("i1").ok());
  run_->Pass(absl::Seconds(7));
  EXPECT_EQ(Find(), std::nullopt) << "too early";
  PassAbsence();
  EXPECT_EQ(Find(), 2);
}

TEST_F(SlotReuseTest, ALostIslandIsGoneOnceItsLeaseEnded) {
  Start(ShortLeases(ElasticSpec()), 2);
  run_->Pass(kAbsentMin, {"i1"});
  EXPECT_EQ(Find(), std::nullopt) << "its lease lasted for a while";
  run_->Pass(kLease + absl::Seconds(1), {"i1"});
  EXPECT_EQ(Find(), 1);
}

TEST_F(SlotReuseTest, ARemovedIslandKeepsItsSlotAndSoDoesAReadmittedOne) {
  Start(ShortLeases(ElasticSpec()), 3);
  ASSERT_TRUE(run_->Remove("i1").ok());
  ASSERT_TRUE(run_->Remove("i2").ok());
  ASSERT_TRUE(run_->Remove("i2", /*readmit=*/true).ok());
  PassAbsence();
  EXPECT_EQ(Find(), std::nullopt);
}

TEST_F(SlotReuseTest, WaitsUntilNothingNamesTheIsland) {
  Start(ShortLeases(ElasticSpec()), 2);
  run_->Push("i1", 0, 0);
  ASSERT_TRUE(run_->Leave("i1").ok());
  PassAbsence();
  EXPECT_EQ(Find(), std::nullopt) << "a shard holds a contribution of it";
  run_->Push("i1", 0, 1);
  run_->Pass(absl::Seconds(2));  // The grace window.
  ASSERT_EQ(Phase(), RoundPhase::kSealed);
  EXPECT_EQ(Find(), std::nullopt) << "the seal names it";
  run_->FollowPlans();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(Find(), std::nullopt) << "no shard has persisted the commit";
  run_->FollowPlans();
  EXPECT_EQ(Find(), 1);
  // It may hold what no report names yet.
  run_->RestartServer(0);
  EXPECT_EQ(Find(), std::nullopt);
}

TEST_F(SlotReuseTest, ANewIslandOfAFullRunTakesOverASlot) {
  v1::RunSpec spec = ShortLeases(ElasticSpec(kFragmentsMax));
  spec.mutable_data()->set_data_shard_count(256);
  Start(spec, 0);
  const int most = kFragmentsTimesIslandsMax / kFragmentsMax;
  for (int i = 0; i < most; ++i) {
    ASSERT_TRUE(run_->Join(absl::StrCat("i", i)).ok());
  }
  const IslandCredentials gone = run_->Credentials("i5");
  ASSERT_TRUE(run_->Leave("i5").ok());
  run_->Pass(absl::Seconds(1));
  ASSERT_TRUE(run_->Leave("i7").ok());
  const absl::Status full = run_->Join("new");
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("is free 10s later"));
  PassAbsence();
  // A member that comes back in time keeps its slot.
  ASSERT_TRUE(run_->Join("i7").ok());
  ASSERT_TRUE(run_->Leave("i7").ok());
  EXPECT_EQ(run_->state().FindMember("i7")->record.slot(), 7);

  ASSERT_TRUE(run_->Join("new").ok());
  const Member* member = run_->state().FindMember("new");
  ASSERT_NE(member, nullptr);
  EXPECT_EQ(member->record.slot(), 5);
  EXPECT_EQ(member->record.island_epoch(), 2);
  EXPECT_GT(member->record.next_seq(), 1 + kFragmentsMax - 1);
  EXPECT_EQ(run_->state().FindMember("i5"), nullptr);
  EXPECT_EQ(static_cast<int>(run_->state().members().size()), most);
  EXPECT_TRUE(absl::IsFailedPrecondition(run_->machine().CheckIsland(gone)));
  EXPECT_TRUE(absl::IsAborted(run_->machine().CheckIsland(
      {"new", gone.island_epoch, gone.session_secret})));
  EXPECT_TRUE(run_->Heartbeat("new").ok());

  // The log and a snapshot give the same state.
  run_->Restart();
  run_->Restart(run_->state().revision());
  run_->Restart(run_->state().revision() - 1);
  EXPECT_EQ(run_->state().FindMember("new")->record.slot(), 5);
  EXPECT_EQ(run_->state().FindMember("i5"), nullptr);

  // The first island is a new one, once there is a slot for it.
  EXPECT_TRUE(absl::IsResourceExhausted(run_->Join("i5")));
  PassAbsence();
  run_->FollowPlans();
  ASSERT_TRUE(run_->Join("i5").ok());
  EXPECT_EQ(run_->state().FindMember("i5")->record.slot(), 7);
  EXPECT_EQ(run_->state().FindMember("i7"), nullptr);
}

TEST_F(SlotReuseTest, CountsOfTheIslandBeforeAreNotOfTheNewOne) {
  Start(ShortLeases(ElasticSpec()), 2);
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  ASSERT_EQ(run_->state().members()[1].merged_count, 1);
  ASSERT_TRUE(run_->Leave("i1").ok());
  RunState state;
  ASSERT_TRUE(
      state.Restore(run_->state().ToSnapshot(), run_->state().revision()).ok());
  const auto join = [&](int64_t epoch_more, int64_t seq_more,
                        const std::string& island_id) {
    RunState next = state;
    storage::v1::Record record;
    record.set_revision(state.revision() + 1);
    storage::v1::MemberSet& member = *record.mutable_member_set();
    member = state.members()[1].record;
    member.set_island_id(island_id);
    member.set_state(v1::ISLAND_STATE_JOINING);
    member.set_island_epoch(member.island_epoch() + epoch_more);
    member.set_next_seq(member.next_seq() + seq_more);
    const absl::Status applied = next.Apply(record);
    if (applied.ok()) {
      EXPECT_EQ(next.members()[1].merged_count, 0);
      EXPECT_EQ(next.FindMember("i1"), nullptr);
      EXPECT_EQ(next.FindMember(island_id)->record.slot(), 1);
    }
    return applied;
  };
  EXPECT_TRUE(join(1, 20, "new").ok());
  // An old session or an old key would fit again.
  EXPECT_TRUE(absl::IsDataLoss(join(0, 20, "new")));
  EXPECT_TRUE(absl::IsDataLoss(join(1, 0, "new")));
  // An island has one slot.
  EXPECT_TRUE(absl::IsDataLoss(join(1, 20, "i0")));
}

}  // namespace
}  // namespace atl::coordinator
