// Runs that go back to an earlier cut, against real servers over loopback.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/v1/parameter_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

// Begins a run, and returns checkpoints of versions 0 and 1, which are durable.
void Begin(TestCluster& cluster, int server_count, std::vector<v1::Pin>* pins) {
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  pins->push_back(cluster.AddCheckpoint("round-0"));
  ASSERT_OK(cluster.Round(0, 3));
  pins->push_back(cluster.AddCheckpoint("round-1"));
  for (int shard = 0; shard < server_count; ++shard) {
    ASSERT_OK(cluster
                  .WaitForReport(shard,
                                 [](const v1::ShardReport& r) {
                                   return r.checkpoints_size() == 2;
                                 })
                  .status());
  }
}

// A run without a restore: three islands in round 0, `slots` in round 1.
std::string FindUndisturbed(const v1::Run& run, int slots) {
  TestCluster cluster(run, 2);
  EXPECT_TRUE(cluster.StartAll().ok());
  EXPECT_TRUE(cluster.Begin().ok());
  EXPECT_TRUE(cluster.Round(0, 3).ok());
  EXPECT_TRUE(cluster.Round(1, slots).ok());
  const auto sha256 = cluster.Sha256();
  EXPECT_TRUE(sha256.ok()) << sha256.status();
  return sha256.ok() ? *sha256 : "";
}

// Waits until every shard has reported the restore, without a fault.
void ExpectRestored(TestCluster& cluster, int server_count, int checkpoints) {
  for (int shard = 0; shard < server_count; ++shard) {
    const auto report = cluster.WaitForRestore(shard);
    ASSERT_OK(report.status());
    EXPECT_EQ(report->fault(), "");
    EXPECT_TRUE(report->initialized());
    EXPECT_EQ(report->persisted_commit_seq(), cluster.commit_seq());
    EXPECT_EQ(report->stored_size(), 0);
    EXPECT_EQ(report->prepared_size(), 0);
    EXPECT_EQ(report->checkpoints_size(), checkpoints);
    for (const auto& checkpoint : report->checkpoints()) {
      EXPECT_TRUE(checkpoint.durable()) << checkpoint.fault();
    }
    // Calls under the new run_epoch are admitted from then on.
    ASSERT_OK(cluster.WaitForPlan(shard));
  }
}

TEST(RestoreTest, TheRunGoesOnFromTheCutBitForBit) {
  for (const v1::Durability level :
       {v1::DURABILITY_MACHINE, v1::DURABILITY_PROCESS}) {
    SCOPED_TRACE(v1::Durability_Name(level));
    v1::Run run = SmallRun();
    run.mutable_spec()->set_durability(level);
    TestCluster cluster(run, 2);
    std::vector<v1::Pin> pins;
    ASSERT_NO_FATAL_FAILURE(Begin(cluster, 2, &pins));
    const auto at_cut = cluster.Pull(0, 1);
    ASSERT_OK(at_cut.status());
    ASSERT_OK(cluster.Round(1, 3));
    cluster.AddCheckpoint("round-2");
    ASSERT_OK(cluster.Round(2, 3));
    // Two contributions that no round has decided.
    for (const int32_t slot : {0, 1}) {
      const auto gradient = cluster.Gradient(0, slot, 3);
      ASSERT_OK(cluster.Push(cluster.Info(0, slot, 3, gradient), gradient));
    }
    cluster.Restore(pins[1]);
    ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 2, 2));
    EXPECT_EQ(*cluster.Pull(0, 1), *at_cut);
    EXPECT_FALSE(
        cluster.fs(0).Exists(TestCluster::Names(0).VersionPath(0, 3)));
    ASSERT_OK(cluster.Round(1, 2));
    EXPECT_EQ(*cluster.Sha256(), FindUndisturbed(run, 2));
    EXPECT_NE(*cluster.Sha256(), FindUndisturbed(run, 3));
  }
}

TEST(RestoreTest, OutlivesAPowerCutAndIsNotRepeated) {
  TestCluster cluster(SmallRun(), 2);
  std::vector<v1::Pin> pins;
  ASSERT_NO_FATAL_FAILURE(Begin(cluster, 2, &pins));
  ASSERT_OK(cluster.Round(1, 3));
  cluster.CutPower(1);
  cluster.Restore(pins[1]);  // Server 1 hears of it at its start.
  ASSERT_OK(cluster.Start(1));
  ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 2, 2));
  ASSERT_OK(cluster.Round(1, 2));
  const std::string sha256 = *cluster.Sha256();
  EXPECT_EQ(sha256, FindUndisturbed(SmallRun(), 2));
  cluster.CutPower(0);
  ASSERT_OK(cluster.Start(0));
  ASSERT_OK(cluster.WaitForRestore(0).status());
  ASSERT_OK(cluster.WaitForPlan(0));
  EXPECT_EQ(*cluster.Sha256(), sha256);
}

TEST(RestoreTest, OpenStreamsEndAndAreToldTheRunEpoch) {
  TestCluster cluster(SmallRun(), 1);
  std::vector<v1::Pin> pins;
  ASSERT_NO_FATAL_FAILURE(Begin(cluster, 1, &pins));
  const auto gradient = cluster.Gradient(0, 0, 1);
  const auto stub = cluster.Stub(0);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(2));
  context.AddMetadata(rpc::kSessionMetadata,
                      rpc::ToHex(TestCluster::Secret(0)));
  const auto stream = stub->PushOuterGradient(&context);
  v1::PushOuterGradientRequest request;
  *request.mutable_header() =
      cluster.Header(cluster.Info(0, 0, 1, gradient), 0);
  ASSERT_TRUE(stream->Write(request));
  v1::PushOuterGradientResponse response;
  ASSERT_TRUE(stream->Read(&response));  // The stream is open.
  cluster.Restore(pins[1]);
  while (stream->Read(&response)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED)
      << status.error_message();
  EXPECT_NE(status.error_message().find("run_epoch is now 2"),
            std::string::npos)
      << status.error_message();
  ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 1, 2));
}

TEST(RestoreTest, AShardWithoutTheCutDeletesNothingAndTakesAnother) {
  TestCluster cluster(SmallRun(), 2);
  std::vector<v1::Pin> pins;
  ASSERT_NO_FATAL_FAILURE(Begin(cluster, 2, &pins));
  ASSERT_OK(cluster.Round(1, 3));
  const ShardNames names = TestCluster::Names(0);
  ASSERT_OK(cluster.fs(0).Remove(names.VersionPath(0, 1)));
  cluster.Restore(pins[1]);
  const auto report = cluster.WaitForRestore(0);
  ASSERT_OK(report.status());
  EXPECT_EQ(report->fault_detail().code(), "DATA_LOSS") << report->fault();
  EXPECT_NE(report->fault().find("version 1 of fragment 0"), std::string::npos)
      << report->fault();
  EXPECT_NE(report->fault().find("another checkpoint"), std::string::npos);
  EXPECT_TRUE(cluster.fs(0).Exists(names.VersionPath(0, 2)));
  EXPECT_TRUE(cluster.fs(0).Exists(names.ManifestPath("round-1")));
  // A later plan of the same run_epoch changes nothing.
  cluster.Publish();
  ASSERT_OK(cluster.WaitForPlan(0));
  EXPECT_TRUE(cluster.fs(0).Exists(names.VersionPath(0, 2)));
  cluster.Restore(pins[0]);
  ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 2, 1));
  ASSERT_OK(cluster.Round(0, 3));
  ASSERT_OK(cluster.Round(1, 2));
  EXPECT_EQ(*cluster.Sha256(), FindUndisturbed(SmallRun(), 2));
}

TEST(RestoreTest, AShardWhoseNewestVersionIsDamagedGoesBack) {
  TestCluster cluster(SmallRun(), 2);
  std::vector<v1::Pin> pins;
  ASSERT_NO_FATAL_FAILURE(Begin(cluster, 2, &pins));
  ASSERT_OK(cluster.Round(1, 3));
  cluster.Stop(0);
  {
    auto file = *cluster.fs(0).OpenForWrite(
        TestCluster::Names(0).VersionPath(0, 2));
    ASSERT_OK(file->WriteAt(0, "damaged"));
  }
  ASSERT_OK(cluster.Start(0));
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return !r.fault().empty(); });
  ASSERT_OK(report.status());
  EXPECT_EQ(report->fault_detail().code(), "DATA_LOSS") << report->fault();
  // The coordinator must know which checkpoints it can go back to.
  EXPECT_EQ(report->checkpoints_size(), 2);
  cluster.Restore(pins[1]);
  ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 2, 2));
  ASSERT_OK(cluster.Round(1, 2));
  EXPECT_EQ(*cluster.Sha256(), FindUndisturbed(SmallRun(), 2));
}

TEST(RestoreTest, AShardThatIsBehindGoesBack) {
  TestCluster cluster(SmallRun(), 2);
  std::vector<v1::Pin> pins;
  ASSERT_NO_FATAL_FAILURE(Begin(cluster, 2, &pins));
  // The coordinator knows of commits that neither shard has.
  cluster.plan().set_commit_seq(cluster.commit_seq() + 4);
  cluster.Publish();
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return !r.fault().empty(); });
  ASSERT_OK(report.status());
  EXPECT_EQ(report->fault_detail().code(), "SHARD_BEHIND") << report->fault();
  cluster.Restore(pins[1]);
  ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 2, 2));
  ASSERT_OK(cluster.Round(1, 2));
  EXPECT_EQ(*cluster.Sha256(), FindUndisturbed(SmallRun(), 2));
}

TEST(RestoreTest, ACompletedRunTakesContributionsAgain) {
  TestCluster cluster(SmallRun(), 2);
  std::vector<v1::Pin> pins;
  ASSERT_NO_FATAL_FAILURE(Begin(cluster, 2, &pins));
  ASSERT_OK(cluster.Round(1, 3));
  cluster.plan().set_run_state(v1::RUN_STATE_COMPLETED);
  cluster.Publish();
  for (int shard = 0; shard < 2; ++shard) {
    ASSERT_OK(cluster.WaitForPlan(shard));
  }
  cluster.plan().set_run_state(v1::RUN_STATE_ACTIVE);
  cluster.Restore(pins[1]);
  ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 2, 2));
  ASSERT_OK(cluster.Round(1, 2));
  EXPECT_EQ(*cluster.Sha256(), FindUndisturbed(SmallRun(), 2));
}

// Islands that hold replicas get the cut's, which may not be in its file, and
// no delta of the past that has ended.
TEST(RestoreTest, TheReplicaOfTheCutIsServed) {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_exchange()->set_down(v1::CODEC_INT8);
  run.mutable_spec()->mutable_exchange()->set_seed(11);
  for (const int64_t cut : {1, 2}) {
    SCOPED_TRACE(cut);
    TestCluster cluster(run, 1);
    ASSERT_OK(cluster.StartAll());
    ASSERT_OK(cluster.Begin());
    for (int64_t v = 0; v < cut; ++v) ASSERT_OK(cluster.Round(v, 3));
    const v1::Pin pin = cluster.AddCheckpoint("cut");
    std::vector<float> replica;
    ASSERT_OK(cluster.PullReplica(0, cut, -1, replica).status());
    for (int64_t v = cut; v < cut + 4; ++v) ASSERT_OK(cluster.Round(v, 3));
    cluster.Restore(pin);
    ASSERT_NO_FATAL_FAILURE(ExpectRestored(cluster, 1, 1));
    std::vector<float> again;
    ASSERT_OK(cluster.PullReplica(0, cut, -1, again).status());
    EXPECT_EQ(again, replica);
    ASSERT_OK(cluster.Round(cut, 2));
    // By the delta, and whole.
    ASSERT_OK(cluster.PullReplica(0, cut + 1, cut, again).status());
    ASSERT_OK(cluster.PullReplica(0, cut + 1, -1, replica).status());
    EXPECT_EQ(again, replica);
  }
}

}  // namespace
}  // namespace atl::server
