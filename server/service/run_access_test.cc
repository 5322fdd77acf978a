#include "server/service/run_access.h"

#include <string>

#include "base/status/refusal.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);

class RunAccessTest : public ::testing::Test {
 protected:
  RunAccessTest() : access_(clock_) {
    v1::ServerPlan plan;
    plan.mutable_log()->set_cluster_id("cluster");
    v1::ServerRunPlan& run = *plan.add_runs();
    run.set_run_id("spring");
    run.set_run_uid("uid");
    run.add_revoked_island_ids("cellar");
    access_.TakePlan(plan);
    access_.NoteAnswer(kLease);
  }

  static rpc::Caller Enrolled(const std::string& name,
                              const std::string& uid = "uid",
                              const std::string& cluster = "cluster") {
    rpc::Caller caller;
    caller.role = rpc::Role::kIsland;
    caller.id = name;
    caller.scope = RunScope();
    caller.scope.run_uid = uid;
    caller.scope.cluster_id = cluster;
    return caller;
  }

  std::string Reason(const rpc::Caller& caller) const {
    const absl::Status status = access_.Check(caller, "spring", "uid");
    return status.ok() ? "" : GetReason(status)->reason;
  }

  FakeClock clock_;
  RunAccess access_;
};

TEST_F(RunAccessTest, AdmitsAnEnrolledIslandToItsOwnRunAlone) {
  EXPECT_EQ(Reason(Enrolled("attic")), "");
  EXPECT_EQ(Reason(Enrolled("attic", "other")), "NOT_YOUR_RUN");
  EXPECT_EQ(Reason(Enrolled("attic", "uid", "other")), "NOT_YOUR_RUN");
}

TEST_F(RunAccessTest, TellsAnIslandToWaitBeforeTheFirstPlan) {
  const RunAccess fresh(clock_);
  const absl::Status status = fresh.Check(Enrolled("attic"), "spring", "uid");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(RunAccessTest, RefusesARevokedNameWhateverItsCertificateIs) {
  EXPECT_EQ(Reason(Enrolled("cellar")), "REVOKED");
  rpc::Caller issued;
  issued.role = rpc::Role::kIsland;
  issued.id = "cellar";
  EXPECT_EQ(Reason(issued), "REVOKED");
  issued.role = rpc::Role::kOperator;  // A person of the same name.
  EXPECT_EQ(Reason(issued), "");
}

TEST_F(RunAccessTest, RefusesEnrolledIslandsOnceItsPlanIsTooOld) {
  rpc::Caller issued;
  issued.role = rpc::Role::kIsland;
  issued.id = "attic";
  clock_.Advance(kLease - absl::Milliseconds(1));
  EXPECT_EQ(Reason(Enrolled("attic")), "");
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Reason(Enrolled("attic")), "PLAN_TOO_OLD");
  EXPECT_EQ(Reason(issued), "");
  access_.NoteAnswer(kLease);
  EXPECT_EQ(Reason(Enrolled("attic")), "");
}

TEST_F(RunAccessTest, HoldsAnIssuedCertificateToItsRunIds) {
  rpc::Caller issued;
  issued.role = rpc::Role::kReader;
  issued.id = "board";
  issued.scope = RunScope();
  issued.scope.run_ids = {"autumn"};
  EXPECT_EQ(Reason(issued), "NOT_YOUR_RUN");
  issued.scope.run_ids.push_back("spring");
  EXPECT_EQ(Reason(issued), "");
}

TEST_F(RunAccessTest, AStreamsCheckFollowsThePlan) {
  const auto check = access_.MakeCheck(Enrolled("attic"), "spring", "uid");
  EXPECT_TRUE(check().ok());
  clock_.Advance(kLease);
  EXPECT_TRUE(absl::IsUnavailable(check()));
}

}  // namespace
}  // namespace atl::server
