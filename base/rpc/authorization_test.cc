#include "base/rpc/authorization.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "atoll/v1/enrolment_service.pb.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/status/refusal.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

// Every method of every service, from the descriptors.
std::set<std::string> AllMethods() {
  std::set<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::CreateRunRequest::descriptor()->file(),
        v1::CreateTokenRequest::descriptor()->file(),
        v1::GetRunStateRequest::descriptor()->file(),
        v1::JoinRequest::descriptor()->file(),
        v1::RegisterServerRequest::descriptor()->file(),
        v1::PushHeader::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        methods.insert(absl::StrCat("/", service->full_name(), "/",
                                    service->method(m)->name()));
      }
    }
  }
  return methods;
}

// The contract's table, written a second time. Roles: o i s r g. A coordinator
// (c) and a data server (d) call nothing.
const std::map<std::string, std::string>& Expected() {
  static const auto* const expected = new std::map<std::string, std::string>({
      {"/atoll.v1.EnrolmentService/AnnounceGate", "og"},
      {"/atoll.v1.EnrolmentService/CheckToken", "og"},
      {"/atoll.v1.EnrolmentService/ConsumeToken", "og"},
      {"/atoll.v1.EnrolmentService/CreateToken", "o"},
      {"/atoll.v1.EnrolmentService/ListAuditRecords", "o"},
      {"/atoll.v1.EnrolmentService/ListTokens", "o"},
      {"/atoll.v1.EnrolmentService/RenewCertificate", "og"},
      {"/atoll.v1.EnrolmentService/RevokeIsland", "o"},
      {"/atoll.v1.EnrolmentService/RevokeToken", "o"},
      {"/atoll.v1.IslandService/Heartbeat", "oi"},
      {"/atoll.v1.IslandService/Join", "oi"},
      {"/atoll.v1.IslandService/Leave", "oi"},
      {"/atoll.v1.IslandService/ReportProgress", "oi"},
      {"/atoll.v1.IslandService/ReportReady", "oi"},
      {"/atoll.v1.IslandService/SignDataUrls", "oir"},
      {"/atoll.v1.IslandService/WatchPlan", "oi"},
      {"/atoll.v1.ParameterService/ImportParameters", "o"},
      {"/atoll.v1.ParameterService/PullKept", "o"},
      {"/atoll.v1.ParameterService/PullParameters", "oir"},
      {"/atoll.v1.ParameterService/PushOuterGradient", "oi"},
      {"/atoll.v1.RunService/AdoptRun", "o"},
      {"/atoll.v1.RunService/CancelRun", "o"},
      {"/atoll.v1.RunService/CreateRun", "o"},
      {"/atoll.v1.RunService/DeleteRun", "o"},
      {"/atoll.v1.RunService/ExportCheckpoint", "o"},
      {"/atoll.v1.RunService/GetRun", "oisr"},
      {"/atoll.v1.RunService/ListRuns", "or"},
      {"/atoll.v1.RunService/PauseRun", "o"},
      {"/atoll.v1.RunService/RemoveIsland", "o"},
      {"/atoll.v1.RunService/ReplaceServer", "o"},
      {"/atoll.v1.RunService/RestoreRun", "o"},
      {"/atoll.v1.RunService/ResumeRun", "o"},
      {"/atoll.v1.ServerService/RegisterServer", "os"},
      {"/atoll.v1.ServerService/ReportShards", "os"},
      {"/atoll.v1.ServerService/WatchServerPlan", "os"},
      {"/atoll.v1.TrainingStateService/GetCluster", "o"},
      {"/atoll.v1.TrainingStateService/GetMetrics", "or"},
      {"/atoll.v1.TrainingStateService/GetRunState", "or"},
      {"/atoll.v1.TrainingStateService/ListCheckpoints", "or"},
      {"/atoll.v1.TrainingStateService/ListIslands", "or"},
      {"/atoll.v1.TrainingStateService/ListRounds", "or"},
      {"/atoll.v1.TrainingStateService/WatchRun", "or"},
  });
  return *expected;
}

TEST(AuthorizationTest, DecidesEveryMethodOfEveryServiceForEveryRole) {
  const std::set<std::string> methods = AllMethods();
  EXPECT_EQ(methods.size(), Expected().size());
  for (const std::string& method : methods) {
    ASSERT_TRUE(Expected().contains(method)) << method;
    for (int i = 0; i < kRoleCount; ++i) {
      const Role role = static_cast<Role>(i);
      const bool allowed =
          Expected().at(method).find(RoleName(role)[0]) != std::string::npos;
      const absl::Status status = CheckRole(method, role);
      EXPECT_EQ(status.ok(), allowed) << method << " " << RoleName(role);
      if (allowed) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    }
  }
}

TEST(AuthorizationTest, DeniesWhatIsNotInTheTable) {
  for (const char* method :
       {"", "/", "/atoll.v1.RunService/DropEverything", "/other.Service/Get",
        "atoll.v1.RunService/GetRun", "/atoll.v1.RunService/GetRun/"}) {
    EXPECT_EQ(CheckRole(method, Role::kOperator).code(),
              absl::StatusCode::kPermissionDenied)
        << method;
  }
}

TEST(AuthorizationTest, LetsEveryRoleAskForHealthAndReflection) {
  for (int i = 0; i < kRoleCount; ++i) {
    const Role role = static_cast<Role>(i);
    EXPECT_TRUE(CheckRole("/grpc.health.v1.Health/Check", role).ok());
    EXPECT_TRUE(
        CheckRole(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            role)
            .ok());
  }
}

TEST(AuthorizationTest, ReadsRoleAndIdFromACommonName) {
  for (int i = 0; i < kRoleCount; ++i) {
    const Role role = static_cast<Role>(i);
    const auto caller =
        ParseCommonName(absl::StrCat("atoll:", RoleName(role), ":box-7"));
    ASSERT_TRUE(caller.ok());
    EXPECT_EQ(caller->role, role);
    EXPECT_EQ(caller->id, "box-7");
  }
}

TEST(AuthorizationTest, KnowsNobodyByAnyOtherName) {
  for (const char* name :
       {"", "box", "atoll:island", "atoll:island:", "atoll:root:x",
        "atoll:island:x:y", "atoll:Island:x", "Atoll:island:x",
        "atoll:island:A", "atoll:island:../x", " atoll:island:x",
        "atoll:island:x\n"}) {
    EXPECT_EQ(ParseCommonName(name).status().code(),
              absl::StatusCode::kUnauthenticated)
        << name;
  }
}

TEST(AuthorizationTest, LetsAnIslandActForItselfAlone) {
  const Caller island{Role::kIsland, "a"};
  EXPECT_TRUE(CheckActsFor(island, Role::kIsland, "a").ok());
  EXPECT_FALSE(CheckActsFor(island, Role::kIsland, "b").ok());
  EXPECT_FALSE(CheckActsFor(island, Role::kServer, "a").ok());
  EXPECT_FALSE(CheckActsFor({Role::kReader, "a"}, Role::kIsland, "a").ok());
  EXPECT_TRUE(CheckActsFor({Role::kOperator, "o"}, Role::kIsland, "b").ok());
  EXPECT_TRUE(CheckActsFor(Caller{}, Role::kIsland, "b").ok());
  EXPECT_EQ(GetReason(CheckActsFor(island, Role::kIsland, "b"))->reason,
            "NOT_YOURS");
}

}  // namespace
}  // namespace atl::rpc
