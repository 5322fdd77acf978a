// A server's planned end, and what its metrics say of it.

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/failpoint/test_point.h"
#include "base/metrics/metrics.h"
#include "base/rpc/call.h"
#include "base/status/refusal.h"
#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"
#include "server/parameter_server.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

constexpr absl::Duration kPatience = TestCluster::kPatience;

v1::Run RunAtLevelProcess() {
  v1::Run run = SmallRun();
  run.mutable_spec()->set_durability(v1::DURABILITY_PROCESS);
  return run;
}

class DrainTest : public testing::Test {
 protected:
  DrainTest() : gradient_(cluster_.Gradient(0, 0, 0)) {
    absl::Status ready = cluster_.StartAll();
    if (ready.ok()) ready = cluster_.Begin();
    if (ready.ok()) ready = cluster_.WaitForPlan(0);
    EXPECT_TRUE(ready.ok()) << ready;
  }

  absl::Status Drain() {
    return cluster_.server(0).Drain(absl::Now() + kPatience);
  }
  v1::ContributionInfo Info() { return cluster_.Info(0, 0, 0, gradient_); }

  // The gauge's value; -1 if there is none.
  double CountShards(const std::string& state) {
    for (const auto& family : cluster_.metrics(0).Collect()) {
      if (family.name != "atoll_server_shards") continue;
      for (const auto& metric : family.metric) {
        if (metric.label.at(0).value == state) return metric.gauge.value;
      }
    }
    return -1;
  }

  TestCluster cluster_{RunAtLevelProcess(), 1};
  const std::vector<float> gradient_;
};

TEST_F(DrainTest, WhatWasAcknowledgedAtLevelProcessOutlivesAPowerCut) {
  ASSERT_TRUE(cluster_.Push(Info(), gradient_).ok());
  const absl::Status drained = Drain();
  ASSERT_TRUE(drained.ok()) << drained;
  cluster_.CutPower(0);
  ASSERT_TRUE(cluster_.Start(0).ok());
  const auto report = cluster_.WaitForReport(
      0,
      [](const v1::ShardReport& report) { return report.stored_size() > 0; });
  EXPECT_TRUE(report.ok()) << report.status();
}

TEST_F(DrainTest, APushWhoseBlocksAreAllHereEndsWithItsOutcome) {
  Notification is_storing, others_ended;
  const ScopedTestHook hook([&](absl::string_view name) {
    if (name == "a contribution is stored") {
      is_storing.Notify();
      EXPECT_TRUE(others_ended.WaitWithTimeout(kPatience));
    }
    if (name == "a drain waits for pushes") others_ended.Notify();
  });
  absl::Status pushed;
  // The server does not come back, so a push that is cut never ends well.
  std::thread push(
      [&] { pushed = cluster_.Push(Info(), gradient_, absl::Seconds(20)); });
  EXPECT_TRUE(is_storing.WaitWithTimeout(kPatience));
  const absl::Status drained = Drain();
  push.join();
  EXPECT_TRUE(drained.ok()) << drained;
  EXPECT_TRUE(pushed.ok()) << pushed;
}

TEST_F(DrainTest, APushThatLacksBlocksIsToldToComeAgain) {
  const auto stub = cluster_.Stub(0);
  grpc::ClientContext context;
  context.AddMetadata(rpc::kSessionMetadata,
                      rpc::ToHex(TestCluster::Secret(0)));
  const auto stream = stub->PushOuterGradient(&context);
  v1::PushOuterGradientRequest request;
  *request.mutable_header() = cluster_.Header(Info(), 0);
  ASSERT_TRUE(stream->Write(request));
  v1::PushOuterGradientResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_FALSE(response.stored());
  ASSERT_TRUE(Drain().ok());
  EXPECT_FALSE(stream->Read(&response));
  const absl::Status ended = rpc::FromGrpc(stream->Finish());
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  ASSERT_TRUE(GetReason(ended).has_value()) << ended;
  EXPECT_EQ(GetReason(ended)->reason, "STOPPING");
}

TEST_F(DrainTest, ADiskThatFailsTheFlushIsNamed) {
  ASSERT_TRUE(cluster_.Push(Info(), gradient_).ok());
  cluster_.fs(0).AddFault(
      {FakeFileSystem::Fault::Call::kSync, TestCluster::Names(0).log(), EIO});
  const absl::Status drained = Drain();
  EXPECT_TRUE(absl::IsDataLoss(drained)) << drained;
  EXPECT_NE(drained.message().find("not durable yet"), std::string::npos)
      << drained;
}

TEST_F(DrainTest, AServerIsReadyUntilItStops) {
  EXPECT_TRUE(cluster_.metrics(0).ready().ok());
  ASSERT_TRUE(Drain().ok());
  EXPECT_TRUE(absl::IsUnavailable(cluster_.metrics(0).ready()));
}

TEST_F(DrainTest, AShardIsCountedByItsState) {
  EXPECT_EQ(CountShards("serving"), 1);
  EXPECT_EQ(CountShards("recovering"), 0);
  EXPECT_EQ(CountShards("stopped"), 0);
  EXPECT_EQ(CountShards("blocked"), 0);
}

}  // namespace
}  // namespace atl::server
