#include "server/core/coordinator_fence.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

v1::RegisterServerResponse Answer(int64_t epoch, const std::string& cluster_id,
                                  int64_t index) {
  v1::RegisterServerResponse answer;
  answer.set_coordinator_epoch(epoch);
  answer.mutable_log()->set_cluster_id(cluster_id);
  answer.mutable_log()->set_index(index);
  return answer;
}

v1::ServerPlan Plan(int64_t epoch, const std::string& cluster_id,
                    int64_t index) {
  v1::ServerPlan plan;
  plan.set_coordinator_epoch(epoch);
  plan.mutable_log()->set_cluster_id(cluster_id);
  plan.mutable_log()->set_index(index);
  return plan;
}

std::string ReasonOf(const absl::Status& status) {
  return status.ok() ? "" : GetReason(status)->reason;
}

TEST(CoordinatorFenceTest, TheFirstClusterIsTakenAndNoOtherAfterIt) {
  CoordinatorFence fence("", 0);
  EXPECT_TRUE(fence.Take(Answer(1, "c", 5)).ok());
  EXPECT_EQ(ReasonOf(fence.Take(Answer(9, "d", 99))), "OTHER_CLUSTER");
  EXPECT_EQ(ReasonOf(fence.Take(Plan(9, "d", 99))), "OTHER_CLUSTER");
  // Nothing of them was taken in.
  EXPECT_TRUE(fence.Take(Plan(1, "c", 5)).ok());
}

TEST(CoordinatorFenceTest, ALowerEpochIsRefused) {
  CoordinatorFence fence("c", 3);
  EXPECT_EQ(ReasonOf(fence.Take(Answer(2, "c", 6))), "LOG_BEHIND");
  EXPECT_EQ(ReasonOf(fence.Take(Plan(2, "c", 6))), "LOG_BEHIND");
  EXPECT_TRUE(fence.Take(Answer(4, "c", 7)).ok());
  EXPECT_EQ(ReasonOf(fence.Take(Plan(3, "c", 8))), "LOG_BEHIND");
}

TEST(CoordinatorFenceTest, APlanOfAnEarlierPlaceThanAPlanBeforeIsRefused) {
  CoordinatorFence fence("c", 3);
  EXPECT_TRUE(fence.Take(Answer(3, "c", 9)).ok());
  EXPECT_TRUE(fence.Take(Plan(3, "c", 8)).ok());
  EXPECT_EQ(ReasonOf(fence.Take(Plan(3, "c", 7))), "LOG_BEHIND");
  EXPECT_TRUE(fence.Take(Plan(3, "c", 8)).ok());
}

// Coordinators of before there were positions.
TEST(CoordinatorFenceTest, WhatIsNotSetIsNotChecked) {
  CoordinatorFence fence("c", 3);
  EXPECT_TRUE(fence.Take(v1::RegisterServerResponse()).ok());
  EXPECT_TRUE(fence.Take(v1::ServerPlan()).ok());
}

}  // namespace
}  // namespace atl::server
