#include "worker/core/check_plan.h"

#include <functional>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

class CheckPlanTest : public testing::Test {
 protected:
  CheckPlanTest() {
    spec_.mutable_layout()->set_fragment_count(2);
    spec_.mutable_data()->set_data_shard_count(3);
    *join_.mutable_run()->mutable_spec() = spec_;
    join_.set_next_seq(1);
    for (int32_t f = 0; f < 2; ++f) {
      v1::FragmentVersion& cut = *join_.mutable_plan()->add_cut();
      cut.set_fragment(f);
      cut.set_version(4);
      v1::OpenRound& open = *join_.mutable_plan()->add_open_rounds();
      open.set_fragment(f);
      open.set_version(4);
      v1::SlotPlan& slot = *open.add_slots();
      slot.set_step_count(5);
      slot.set_data_shard(2);
    }
  }

  absl::StatusCode With(const std::function<void(v1::JoinResponse&)>& change) {
    v1::JoinResponse changed = join_;
    change(changed);
    return CheckJoin(spec_, changed).code();
  }
  absl::StatusCode WithSlot(const std::function<void(v1::SlotPlan&)>& change) {
    return With([&](v1::JoinResponse& join) {
      change(*join.mutable_plan()->mutable_open_rounds(1)->mutable_slots(0));
    });
  }

  v1::RunSpec spec_;
  v1::JoinResponse join_;
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST_F(CheckPlanTest, WhatFitsTheRunPasses) {
  EXPECT_EQ(With([](auto&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(With([](auto& join) { join.mutable_plan()->clear_cut(); }),
            absl::StatusCode::kOk)
      << "of a run that is starting";
}

TEST_F(CheckPlanTest, FragmentsThatTheRunDoesNotHaveAreRefused) {
  EXPECT_EQ(With([](auto& join) {
              join.mutable_plan()->add_cut()->set_fragment(2);
            }),
            kInvalid);
  EXPECT_EQ(With([](auto& join) {
              join.mutable_plan()->mutable_cut()->RemoveLast();
            }),
            kInvalid);
  EXPECT_EQ(With([](auto& join) {
              join.mutable_plan()->mutable_cut(0)->set_fragment(1);
            }),
            kInvalid);
  for (const int32_t fragment : {-1, 2}) {
    EXPECT_EQ(With([&](auto& join) {
                join.mutable_plan()->mutable_open_rounds(0)->set_fragment(
                    fragment);
              }),
              kInvalid);
  }
}

TEST_F(CheckPlanTest, NumbersThatNoRunHasAreRefused) {
  for (const int64_t number : {int64_t{-1}, int64_t{1} << 62}) {
    EXPECT_EQ(WithSlot([&](auto& slot) { slot.set_step_count(number); }),
              kInvalid);
    EXPECT_EQ(WithSlot([&](auto& slot) { slot.set_start_step(number); }),
              kInvalid);
    EXPECT_EQ(WithSlot([&](auto& slot) { slot.set_data_position(number); }),
              kInvalid);
    EXPECT_EQ(With([&](auto& join) {
                join.mutable_plan()->mutable_cut(1)->set_version(number);
              }),
              kInvalid);
    EXPECT_EQ(With([&](auto& join) {
                join.mutable_plan()->mutable_cut(1)->set_commit_seq(number);
              }),
              kInvalid);
    EXPECT_EQ(With([&](auto& join) {
                join.mutable_plan()->mutable_open_rounds(1)->set_version(
                    number);
              }),
              kInvalid);
    EXPECT_EQ(With([&](auto& join) { join.set_next_seq(number); }), kInvalid);
    EXPECT_EQ(With([&](auto& join) { join.set_data_position(number); }),
              kInvalid);
  }
  for (const int32_t shard : {-1, 3}) {
    EXPECT_EQ(WithSlot([&](auto& slot) { slot.set_data_shard(shard); }),
              kInvalid);
    EXPECT_EQ(With([&](auto& join) { join.set_data_shard(shard); }), kInvalid);
  }
  EXPECT_EQ(With([](auto& join) { join.set_slot(-1); }), kInvalid);
  EXPECT_EQ(With([](auto& join) { join.mutable_plan()->set_slot(-1); }),
            kInvalid);
}

TEST_F(CheckPlanTest, AnotherRunThanTheOneThatWasReadIsRefused) {
  EXPECT_EQ(With([](auto& join) {
              join.mutable_run()
                  ->mutable_spec()
                  ->mutable_schedule()
                  ->set_overlap_step_count(1);
            }),
            kInvalid);
}

TEST(CheckRunUidTest, AnotherUidIsAnotherRunAndNoUidIsNotChecked) {
  EXPECT_TRUE(CheckRunUid("a", "a").ok());
  EXPECT_TRUE(CheckRunUid("", "a").ok());
  EXPECT_TRUE(CheckRunUid("a", "").ok());
  const absl::Status other = CheckRunUid("a", "b");
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  ASSERT_TRUE(GetReason(other).has_value());
  EXPECT_EQ(GetReason(other)->reason, "OTHER_RUN");
}

TEST(CheckFeaturesTest, ARunOfANewerProgramIsRefused) {
  v1::RunSpec spec;
  EXPECT_TRUE(CheckFeatures(spec).ok());
  spec.mutable_exchange()->set_up(static_cast<v1::Codec>(99));
  const absl::Status refused = CheckFeatures(spec);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  ASSERT_TRUE(GetReason(refused).has_value());
  EXPECT_EQ(GetReason(refused)->reason, "MISSING_FEATURES");
}

}  // namespace
}  // namespace atl::worker
