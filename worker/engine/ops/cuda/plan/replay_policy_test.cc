#include "worker/engine/ops/cuda/plan/replay_policy.h"

#include "gtest/gtest.h"

namespace atl::engine::cuda {
namespace {

constexpr auto kCall = ReplayAction::kCall;
constexpr auto kRecord = ReplayAction::kRecord;
constexpr auto kReplay = ReplayAction::kReplay;

TEST(ReplayPolicyTest, CallsThenRecordsThenReplays) {
  ReplayPolicy policy;
  EXPECT_EQ(policy.Next(1, 10), kCall);
  EXPECT_EQ(policy.Next(1, 12), kRecord);
  policy.Recorded(1, 12);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(policy.Next(1, 12), kReplay);
}

TEST(ReplayPolicyTest, AnotherShapeIsARunOfItsOwn) {
  ReplayPolicy policy;
  policy.Next(1, 0);
  policy.Next(1, 0);
  policy.Recorded(1, 0);
  EXPECT_EQ(policy.Next(2, 0), kCall);
  EXPECT_EQ(policy.Next(2, 0), kRecord);
  policy.Recorded(2, 0);
  EXPECT_EQ(policy.Next(1, 0), kReplay);
  EXPECT_EQ(policy.Next(2, 0), kReplay);
}

TEST(ReplayPolicyTest, WhereMemoryChangedItIsRecordedAnew) {
  ReplayPolicy policy;
  policy.Next(1, 0);
  for (int i = 0; i < 20; ++i) {  // After a replay, changes are no failure.
    ASSERT_EQ(policy.Next(1, i), kRecord);
    policy.Recorded(1, i);
    ASSERT_EQ(policy.Next(1, i), kReplay);
  }
}

TEST(ReplayPolicyTest, RecordsThatAreNeverReplayedAreGivenUp) {
  ReplayPolicy policy;
  policy.Next(1, 0);
  for (int i = 0; i < ReplayPolicy::kFailureCountMax; ++i) {
    ASSERT_EQ(policy.Next(1, i), kRecord) << i;
    policy.Recorded(1, i);
  }
  EXPECT_EQ(policy.Next(1, 100), kCall);
  EXPECT_EQ(policy.Next(1, 100), kCall);
}

TEST(ReplayPolicyTest, WhatCannotBeRecordedIsCalledAfterSomeTries) {
  ReplayPolicy policy;
  policy.Next(1, 0);
  for (int i = 1; i <= ReplayPolicy::kFailureCountMax; ++i) {
    ASSERT_EQ(policy.Next(1, 0), kRecord);
    EXPECT_EQ(policy.Failed(1), i == ReplayPolicy::kFailureCountMax);
  }
  EXPECT_EQ(policy.Next(1, 0), kCall);
  EXPECT_EQ(policy.Next(2, 0), kCall);
  EXPECT_EQ(policy.Next(2, 0), kRecord);
}

TEST(ReplayPolicyTest, KeepsFewRecords) {
  ReplayPolicy policy;
  for (int key = 0; key < ReplayPolicy::kKeyCountMax; ++key)
    policy.Next(key, 0);
  EXPECT_EQ(policy.Next(100, 0), kCall);
  EXPECT_EQ(policy.Next(100, 0), kCall);
  EXPECT_EQ(policy.Next(0, 0), kRecord);
}

}  // namespace
}  // namespace atl::engine::cuda
