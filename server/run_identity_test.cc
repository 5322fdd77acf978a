// Runs that are created again or deleted, and plans and directories of another
// time, with real servers over loopback.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "base/status/refusal.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "server/parameter_server.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

const std::string& kRun = *new std::string(32, 'a');
const std::string& kOtherRun = *new std::string(32, 'b');

v1::Run NamedRun() {
  v1::Run run = SmallRun();
  run.set_run_uid(kRun);
  return run;
}

std::string RunDirectory(const std::string& run_uid) {
  return ShardNames("data", SmallRun().run_id(), run_uid, 0).run_directory();
}

bool HasFault(const v1::ShardReport& report, const std::string& code) {
  return report.fault_detail().code() == code;
}

v1::LogPosition Log(const std::string& cluster_id, int64_t index) {
  v1::LogPosition log;
  log.set_cluster_id(cluster_id);
  log.set_start_id("start");
  log.set_index(index);
  return log;
}

class RunIdentityTest : public testing::Test {
 protected:
  RunIdentityTest() : cluster_(NamedRun(), 1) {}

  void BringToVersion1() {
    ASSERT_OK(cluster_.StartAll());
    ASSERT_OK(cluster_.Begin());
    ASSERT_OK(cluster_.Round(0, 2));
  }
  v1::ShardReport WaitForFault(const std::string& code) {
    const auto report =
        cluster_.WaitForReport(0, [&code](const v1::ShardReport& r) {
          return HasFault(r, code);
        });
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : v1::ShardReport();
  }
  void WaitUntilGone(const std::string& path) {
    const absl::Time end = absl::Now() + TestCluster::kPatience;
    while (cluster_.fs(0).Exists(path) && absl::Now() < end) {
    }
    EXPECT_FALSE(cluster_.fs(0).Exists(path)) << path;
  }

  TestCluster cluster_;
};

TEST_F(RunIdentityTest, ADeletedRunTakesNoCallsAndItsFilesGo) {
  BringToVersion1();
  ASSERT_TRUE(cluster_.fs(0).Exists(RunDirectory(kRun)));
  cluster_.PublishWithoutRun(kRun);
  ASSERT_OK(cluster_.WaitForNoRun(0));
  EXPECT_FALSE(cluster_.fs(0).Exists(RunDirectory(kRun)));
  WaitUntilGone(RunDirectory(kRun) + ".deleted");
  grpc::ClientContext context;
  v1::PullParametersRequest request;
  request.set_run_id(SmallRun().run_id());
  const auto stub = cluster_.Stub(0);
  const auto stream = stub->PullParameters(&context, request);
  v1::PullParametersResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  // A start finds nothing either.
  cluster_.CutPower(0);
  EXPECT_FALSE(cluster_.fs(0).Exists(RunDirectory(kRun)));
}

TEST_F(RunIdentityTest, AnotherRunsDeletionChangesNothing) {
  BringToVersion1();
  cluster_.PublishWithoutRun(kOtherRun);
  ASSERT_OK(cluster_.WaitForPlan(0));
  EXPECT_TRUE(cluster_.fs(0).Exists(RunDirectory(kRun)));
  EXPECT_TRUE(cluster_.Pull(0, 1).ok());
}

TEST_F(RunIdentityTest, ADeletionEndsTheStreamsThatWait) {
  BringToVersion1();
  const auto gradient = cluster_.Gradient(0, 0, 1);
  const auto info = cluster_.Info(0, 0, 1, gradient);
  const auto stub = cluster_.Stub(0);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoSeconds(TestCluster::kPatience));
  context.AddMetadata(rpc::kSessionMetadata,
                      rpc::ToHex(TestCluster::Secret(0)));
  const auto stream = stub->PushOuterGradient(&context);
  v1::PushOuterGradientRequest request;
  *request.mutable_header() = cluster_.Header(info, 0);
  request.mutable_header()->set_run_uid(kRun);
  ASSERT_TRUE(stream->Write(request));
  v1::PushOuterGradientResponse response;
  ASSERT_TRUE(stream->Read(&response));
  cluster_.PublishWithoutRun(kRun);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_OK(cluster_.WaitForNoRun(0));
  EXPECT_FALSE(cluster_.fs(0).Exists(RunDirectory(kRun)));
}

TEST_F(RunIdentityTest, ARunThatIsCreatedAgainWaitsForTheOldOnesDeletion) {
  BringToVersion1();
  cluster_.CreateAgain(kOtherRun);
  cluster_.Publish();
  const v1::ShardReport report = WaitForFault("OTHER_RUN");
  EXPECT_EQ(report.run_uid(), kRun);
  EXPECT_EQ(report.persisted_commit_seq(), 2);
  EXPECT_TRUE(cluster_.fs(0).Exists(RunDirectory(kRun)));
  cluster_.PublishWithoutRun(kRun);
  ASSERT_OK(cluster_.WaitForNoRun(0));
  cluster_.Publish();
  ASSERT_OK(cluster_.Begin());
  EXPECT_TRUE(cluster_.fs(0).Exists(RunDirectory(kOtherRun)));
  ASSERT_OK(cluster_.Round(0, 2));
}

TEST_F(RunIdentityTest, TheRightPlanEndsTheFaultOfAWrongOne) {
  BringToVersion1();
  const v1::ServerRunPlan right = cluster_.plan();
  cluster_.plan().set_commit_seq(0);
  cluster_.Publish();
  WaitForFault("PLAN_BEHIND");
  cluster_.plan() = right;
  cluster_.Publish();
  ASSERT_OK(cluster_
                .WaitForReport(0,
                               [](const v1::ShardReport& r) {
                                 return r.fault().empty();
                               })
                .status());
  ASSERT_OK(cluster_.Round(1, 2));
}

TEST_F(RunIdentityTest, ADirectoryThatIsGoneIsNotMadeAgainFromTheStart) {
  BringToVersion1();
  cluster_.Stop(0);
  ASSERT_OK(cluster_.fs(0).Rename(RunDirectory(kRun), "taken-away"));
  ASSERT_OK(cluster_.Start(0));
  const v1::ShardReport report = WaitForFault("SHARD_BEHIND");
  EXPECT_EQ(report.fault_detail().expected(), "commit 2");
  EXPECT_FALSE(report.initialized());
}

TEST_F(RunIdentityTest, ACallForAnotherRunIsRefusedWithBothNames) {
  BringToVersion1();
  const auto stub = cluster_.Stub(0);
  grpc::ClientContext context;
  v1::PullParametersRequest request;
  request.set_run_id(SmallRun().run_id());
  request.set_run_uid(kOtherRun);
  request.set_layout_fingerprint(cluster_.layout().fingerprint());
  request.set_version(-1);
  const auto stream = stub->PullParameters(&context, request);
  v1::PullParametersResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find(kRun), std::string::npos);
  EXPECT_NE(status.error_message().find(kOtherRun), std::string::npos);
}

TEST_F(RunIdentityTest, AnUnknownMergeRuleIsAFaultOfItsRun) {
  v1::Run run = NamedRun();
  run.mutable_spec()->mutable_outer()->mutable_merge()->set_rule(
      static_cast<v1::MergeRuleKind>(99));
  TestCluster cluster(run, 1);
  ASSERT_OK(cluster.StartAll());
  const auto report = cluster.WaitForReport(0, [](const v1::ShardReport& r) {
    return HasFault(r, "UNKNOWN_MERGE_RULE");
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NE(report->fault().find("99"), std::string::npos);
}

TEST_F(RunIdentityTest, WhatItHasSeenOfTheLogOutlivesAPowerCut) {
  cluster_.SetLog(Log("cluster", 7));
  ASSERT_OK(cluster_.StartAll());
  ASSERT_OK(cluster_.Begin());
  cluster_.SetLog(Log("cluster", 12));
  ASSERT_OK(cluster_.Round(0, 2));
  ASSERT_FALSE(cluster_.control(0).reports().empty());
  EXPECT_EQ(cluster_.control(0).reports().back().log_seen().index(), 12);
  const std::string directory_id =
      cluster_.control(0).registrations().back().directory_id();
  EXPECT_EQ(directory_id.size(), 32u);
  cluster_.CutPower(0);
  ASSERT_OK(cluster_.Start(0));
  ASSERT_OK(cluster_.WaitForPlan(0));
  const v1::RegisterServerRequest again =
      cluster_.control(0).registrations().back();
  EXPECT_EQ(again.log_seen().cluster_id(), "cluster");
  EXPECT_EQ(again.log_seen().index(), 12);
  EXPECT_EQ(again.directory_id(), directory_id);
}

// Otherwise a coordinator that was restored without the pin would have it
// deleted.
TEST_F(RunIdentityTest, WhatDecidedACheckpointIsSeenAfterAPowerCut) {
  cluster_.SetLog(Log("cluster", 7));
  BringToVersion1();
  v1::Pin* pin = cluster_.plan().add_pins();
  pin->set_pin_id("round-1");
  pin->set_commit_seq(3);
  pin->set_checkpoint(true);
  for (int f = 0; f < 2; ++f) {
    v1::FragmentVersion* version = pin->add_cut();
    version->set_fragment(f);
    version->set_version(1);
  }
  cluster_.SetLog(Log("cluster", 20));
  cluster_.Publish();
  ASSERT_OK(cluster_
                .WaitForReport(0,
                               [](const v1::ShardReport& r) {
                                 return r.checkpoints_size() == 1 &&
                                        r.checkpoints(0).durable();
                               })
                .status());
  cluster_.CutPower(0);
  ASSERT_OK(cluster_.Start(0));
  ASSERT_OK(cluster_.WaitForPlan(0));
  EXPECT_EQ(cluster_.control(0).registrations().front().log_seen().index(), 20);
}

TEST_F(RunIdentityTest, APlanOfAnotherClusterIsNotTaken) {
  cluster_.SetLog(Log("cluster", 7));
  BringToVersion1();
  // Its runs do not matter: it would delete the run.
  cluster_.SetLog(Log("another", 99));
  cluster_.PublishWithoutRun(kRun);
  // It asks for a plan again and again.
  for (int i = 0; i < 2; ++i) {
    const size_t before = cluster_.control(0).registrations().size();
    cluster_.FailNext(0, "WaitForPlan",
                      absl::FailedPreconditionError("not registered"));
    ASSERT_TRUE(cluster_.WaitForRegistrations(0, before + 1));
  }
  cluster_.SetLog(Log("cluster", 8));
  cluster_.Publish();
  ASSERT_OK(cluster_.WaitForPlan(0));
  EXPECT_TRUE(cluster_.Pull(0, 1).ok());
  ASSERT_OK(cluster_.Round(1, 2));
}

TEST_F(RunIdentityTest, ARefusedServerServesReadsAndTriesAgain) {
  BringToVersion1();
  for (const char* reason :
       {"OTHER_DIRECTORY", "OTHER_CLUSTER", "LOG_BEHIND", "LOG_DAMAGED"}) {
    const absl::Status refused =
        Refuse(absl::StatusCode::kFailedPrecondition, reason, reason);
    cluster_.FailNext(0, "RegisterServer", refused);
  }
  const size_t before = cluster_.control(0).registrations().size();
  cluster_.FailNext(0, "WaitForPlan",
                    absl::FailedPreconditionError("not registered"));
  EXPECT_TRUE(cluster_.Pull(0, 1).ok());
  ASSERT_TRUE(cluster_.WaitForRegistrations(0, before + 5));
  EXPECT_TRUE(cluster_.server(0).WaitForEnd(absl::ZeroDuration()).ok());
  ASSERT_OK(cluster_.Round(1, 2));
}

}  // namespace
}  // namespace atl::server
