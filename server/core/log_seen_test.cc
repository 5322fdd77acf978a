#include "server/core/log_seen.h"

#include <string>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

v1::LogPosition Position(const std::string& cluster_id, int64_t index,
                         const std::string& start_id = "start") {
  v1::LogPosition position;
  position.set_cluster_id(cluster_id);
  position.set_start_id(start_id);
  position.set_index(index);
  return position;
}

v1::RegisterServerResponse Registered(int64_t epoch,
                                      const v1::LogPosition& log) {
  v1::RegisterServerResponse response;
  response.set_coordinator_epoch(epoch);
  *response.mutable_log() = log;
  return response;
}

v1::ServerPlan Plan(int64_t epoch, const v1::LogPosition& log) {
  v1::ServerPlan plan;
  plan.set_coordinator_epoch(epoch);
  *plan.mutable_log() = log;
  return plan;
}

std::string ReasonOf(const absl::Status& status) {
  return status.ok() ? "" : GetReason(status)->reason;
}

TEST(LogSeenTest, TheNewestPositionIsKept) {
  LogSeen seen;
  EXPECT_EQ(seen.newest().cluster_id(), "");
  EXPECT_TRUE(seen.OnRegistered(Registered(1, Position("c", 5))).ok());
  EXPECT_TRUE(seen.OnPlan(Plan(1, Position("c", 3))).ok());
  EXPECT_EQ(seen.newest().index(), 5);
  EXPECT_TRUE(seen.OnPlan(Plan(1, Position("c", 9))).ok());
  EXPECT_EQ(seen.newest().index(), 9);
  EXPECT_TRUE(seen.OnRegistered(Registered(2, Position("c", 9, "new"))).ok());
  EXPECT_EQ(seen.newest().start_id(), "new");
  EXPECT_EQ(seen.coordinator_epoch(), 2);
}

TEST(LogSeenTest, AnotherClusterIsRefusedAndNotRemembered) {
  LogSeen seen(Position("c", 5), 3);
  EXPECT_EQ(ReasonOf(seen.OnRegistered(Registered(9, Position("d", 99)))),
            "OTHER_CLUSTER");
  EXPECT_EQ(ReasonOf(seen.OnPlan(Plan(9, Position("d", 99)))),
            "OTHER_CLUSTER");
  EXPECT_EQ(seen.newest().cluster_id(), "c");
  EXPECT_EQ(seen.newest().index(), 5);
  EXPECT_EQ(seen.coordinator_epoch(), 3);
}

TEST(LogSeenTest, ALowerEpochIsRefused) {
  LogSeen seen(Position("c", 5), 3);
  EXPECT_EQ(ReasonOf(seen.OnRegistered(Registered(2, Position("c", 6)))),
            "LOG_BEHIND");
  EXPECT_EQ(ReasonOf(seen.OnPlan(Plan(2, Position("c", 6)))), "LOG_BEHIND");
  EXPECT_TRUE(seen.OnPlan(Plan(3, Position("c", 6))).ok());
}

TEST(LogSeenTest, APlanOfAnEarlierPlaceThanAPlanBeforeIsRefused) {
  LogSeen seen(Position("c", 5), 3);
  EXPECT_TRUE(seen.OnPlan(Plan(3, Position("c", 8))).ok());
  EXPECT_EQ(ReasonOf(seen.OnPlan(Plan(3, Position("c", 7)))), "LOG_BEHIND");
  EXPECT_TRUE(seen.OnPlan(Plan(3, Position("c", 8))).ok());
}

// Coordinators of before there were positions.
TEST(LogSeenTest, WhatIsNotSetIsNotChecked) {
  LogSeen seen(Position("c", 5), 3);
  EXPECT_TRUE(seen.OnRegistered({}).ok());
  EXPECT_TRUE(seen.OnPlan({}).ok());
  EXPECT_EQ(seen.newest().index(), 5);
  EXPECT_EQ(seen.coordinator_epoch(), 3);
}

}  // namespace
}  // namespace atl::server
