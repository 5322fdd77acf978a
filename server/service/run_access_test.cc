#include "server/service/run_access.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/identity/identity.h"
#include "base/status/refusal.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr int64_t kRevision = 7;

class RunAccessTest : public ::testing::Test {
 protected:
  RunAccessTest() : access_(clock_) {
    TakePlan(kRevision, {"cellar"});
    access_.NoteAnswer(kRevision, kLease);
  }

  void TakePlan(int64_t revision, const std::vector<std::string>& revoked) {
    v1::ServerPlan plan;
    plan.set_revision(revision);
    plan.mutable_log()->set_cluster_id("cluster");
    v1::ServerRunPlan& run = *plan.add_runs();
    run.set_run_id("spring");
    run.set_run_uid("uid");
    *run.mutable_revoked_island_ids() = {revoked.begin(), revoked.end()};
    access_.TakePlan(plan);
  }

  static rpc::Caller Enrolled(const std::string& name,
                              const std::string& uid = "uid",
                              const std::string& cluster = "cluster") {
    rpc::Caller caller;
    caller.role = Role::kIsland;
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
  issued.role = Role::kIsland;
  issued.id = "cellar";
  EXPECT_EQ(Reason(issued), "REVOKED");
  issued.role = Role::kOperator;  // A person of the same name.
  EXPECT_EQ(Reason(issued), "");
}

TEST_F(RunAccessTest, RefusesEnrolledIslandsOnceItsPlanIsTooOld) {
  rpc::Caller issued;
  issued.role = Role::kIsland;
  issued.id = "attic";
  clock_.Advance(kLease - absl::Milliseconds(1));
  EXPECT_EQ(Reason(Enrolled("attic")), "");
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Reason(Enrolled("attic")), "PLAN_TOO_OLD");
  EXPECT_EQ(Reason(issued), "");
  access_.NoteAnswer(kRevision, kLease);
  EXPECT_EQ(Reason(Enrolled("attic")), "");
}

TEST_F(RunAccessTest, RefusesEnrolledIslandsWhileARevocationDoesNotReachIt) {
  clock_.Advance(kLease - absl::Seconds(1));
  access_.NoteAnswer(kRevision + 1, kLease);  // The plan that revokes attic.
  EXPECT_EQ(Reason(Enrolled("attic")), "");
  clock_.Advance(absl::Seconds(1));
  access_.NoteAnswer(kRevision + 1, kLease);
  EXPECT_EQ(Reason(Enrolled("attic")), "PLAN_TOO_OLD");
  EXPECT_FALSE(access_.TakeOverdue());
  TakePlan(kRevision + 1, {"attic"});
  EXPECT_EQ(Reason(Enrolled("attic")), "REVOKED");
  EXPECT_EQ(Reason(Enrolled("cellar")), "");
}

TEST_F(RunAccessTest, SaysThatAPlanIsOverdueAfterALease) {
  access_.NoteAnswer(kRevision + 1, kLease);
  clock_.Advance(kLease - absl::Milliseconds(1));
  EXPECT_FALSE(access_.TakeOverdue());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(access_.TakeOverdue());
}

TEST_F(RunAccessTest, AnOlderCoordinatorsAnswerRenewsWithoutARevision) {
  clock_.Advance(kLease);
  access_.NoteAnswer(/*revision=*/0, kLease);
  EXPECT_EQ(Reason(Enrolled("attic")), "");
}

TEST_F(RunAccessTest, HoldsAnIssuedCertificateToItsRunIds) {
  rpc::Caller issued;
  issued.role = Role::kReader;
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
  TakePlan(kRevision + 1, {"attic"});
  EXPECT_TRUE(HasReason(check(), "REVOKED"));
}

TEST_F(RunAccessTest, AStreamGoesOnForMinutesWhileTheCoordinatorIsAway) {
  const auto check = access_.MakeCheck(Enrolled("attic"), "spring", "uid");
  clock_.Advance(kLease);
  EXPECT_EQ(Reason(Enrolled("attic")), "PLAN_TOO_OLD") << "others wait";
  clock_.Advance(RunAccess::kAwayMax - absl::Milliseconds(1));
  EXPECT_TRUE(check().ok()) << check();
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(HasReason(check(), "PLAN_TOO_OLD"));
}

// Its plan stream needs a moment after its first answer.
TEST_F(RunAccessTest, AStreamOutlivesTheCoordinatorsReturn) {
  const auto check = access_.MakeCheck(Enrolled("attic"), "spring", "uid");
  clock_.Advance(absl::Minutes(5));
  access_.NoteAnswer(kRevision + 1, kLease);
  EXPECT_TRUE(check().ok()) << check();
  TakePlan(kRevision + 1, {});
  EXPECT_TRUE(check().ok()) << check();
  EXPECT_EQ(Reason(Enrolled("attic")), "");
  TakePlan(kRevision + 2, {"attic"});
  EXPECT_TRUE(HasReason(check(), "REVOKED"));
}

TEST_F(RunAccessTest, AStreamEndsALeaseAfterAnAnswerWhosePlanDoesNotCome) {
  const auto check = access_.MakeCheck(Enrolled("attic"), "spring", "uid");
  access_.NoteAnswer(kRevision + 1, kLease);  // The plan that revokes attic.
  clock_.Advance(kLease - absl::Milliseconds(1));
  access_.NoteAnswer(kRevision + 1, kLease);
  EXPECT_TRUE(check().ok()) << check();
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(HasReason(check(), "PLAN_TOO_OLD"));
  // It stays so when the server asks for the plan again.
  EXPECT_TRUE(access_.TakeOverdue());
  EXPECT_TRUE(HasReason(check(), "PLAN_TOO_OLD"));
  TakePlan(kRevision + 1, {});
  access_.NoteAnswer(kRevision + 1, kLease);
  EXPECT_TRUE(check().ok()) << check();
}

TEST_F(RunAccessTest, RefusesAnEnrolledCertificateThatThePlanDoesNotList) {
  rpc::Caller attic = Enrolled("e-attic");
  attic.scope.key_sha256 = std::string(32, 'k');
  v1::ServerPlan plan;
  plan.set_revision(kRevision);
  plan.mutable_log()->set_cluster_id("cluster");
  v1::ServerRunPlan& run = *plan.add_runs();
  run.set_run_id("spring");
  run.set_run_uid("uid");
  run.set_lists_enrolled(true);
  access_.TakePlan(plan);
  // Its enrolment may be newer than the plan: it calls again.
  EXPECT_EQ(access_.Check(attic, "spring", "uid").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(attic), "NOT_ENROLLED");
  run.add_enrolled(
      EnrolledDigest(Role::kIsland, "e-attic", std::string(32, 'k')));
  access_.TakePlan(plan);
  EXPECT_EQ(Reason(attic), "");
  // The island CA can sign another key, name or role; none of them is enrolled.
  rpc::Caller forged = attic;
  forged.scope.key_sha256 = std::string(32, 'x');
  EXPECT_EQ(Reason(forged), "NOT_ENROLLED");
  forged = attic;
  forged.id = "e-cellar";
  EXPECT_EQ(Reason(forged), "NOT_ENROLLED");
  forged = attic;
  forged.role = Role::kReader;
  EXPECT_EQ(Reason(forged), "NOT_ENROLLED");
  // An operator's certificate is in no list.
  rpc::Caller own = attic;
  own.scope = {.any = true};
  EXPECT_EQ(Reason(own), "");
}

}  // namespace
}  // namespace atl::server
