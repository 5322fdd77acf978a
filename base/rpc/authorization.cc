#include "base/rpc/authorization.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/layout/ids.h"
#include "base/rpc/certificates/public_key.h"
#include "base/rpc/certificates/x509.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/server_context.h"

namespace atl::rpc {
namespace {

using RoleSet = uint8_t;

constexpr RoleSet Bit(Role role) {
  return static_cast<RoleSet>(1u << static_cast<int>(role));
}

constexpr RoleSet kOperator = Bit(Role::kOperator);
constexpr RoleSet kIsland = Bit(Role::kIsland);
constexpr RoleSet kServer = Bit(Role::kServer);
constexpr RoleSet kReader = Bit(Role::kReader);
constexpr RoleSet kGate = Bit(Role::kGate);
// Roles that follow a run.
constexpr RoleSet kCallers = kOperator | kIsland | kServer | kReader;
constexpr RoleSet kAll =
    kCallers | kGate | Bit(Role::kCoordinator) | Bit(Role::kData);

// A method that is not in the table is denied to everyone.
const absl::flat_hash_map<absl::string_view, RoleSet>& Table() {
  static const auto* const table =
      new absl::flat_hash_map<absl::string_view, RoleSet>({
          {"/atoll.v1.RunService/CreateRun", kOperator},
          {"/atoll.v1.RunService/GetRun", kCallers},
          {"/atoll.v1.RunService/ListRuns", kOperator | kReader},
          {"/atoll.v1.RunService/PauseRun", kOperator},
          {"/atoll.v1.RunService/ResumeRun", kOperator},
          {"/atoll.v1.RunService/CancelRun", kOperator},
          {"/atoll.v1.RunService/DeleteRun", kOperator},
          {"/atoll.v1.RunService/RestoreRun", kOperator},
          {"/atoll.v1.RunService/AdoptRun", kOperator},
          {"/atoll.v1.RunService/ReplaceServer", kOperator},
          {"/atoll.v1.RunService/RemoveIsland", kOperator},
          {"/atoll.v1.RunService/ExportCheckpoint", kOperator},

          {"/atoll.v1.TrainingStateService/GetRunState", kOperator | kReader},
          {"/atoll.v1.TrainingStateService/ListIslands", kOperator | kReader},
          {"/atoll.v1.TrainingStateService/ListRounds", kOperator | kReader},
          {"/atoll.v1.TrainingStateService/GetMetrics", kOperator | kReader},
          {"/atoll.v1.TrainingStateService/WatchRun", kOperator | kReader},
          {"/atoll.v1.TrainingStateService/ListCheckpoints",
           kOperator | kReader},
          {"/atoll.v1.TrainingStateService/GetCluster", kOperator},

          {"/atoll.v1.IslandService/Join", kOperator | kIsland},
          {"/atoll.v1.IslandService/ReportReady", kOperator | kIsland},
          {"/atoll.v1.IslandService/Heartbeat", kOperator | kIsland},
          {"/atoll.v1.IslandService/WatchPlan", kOperator | kIsland},
          {"/atoll.v1.IslandService/ReportProgress", kOperator | kIsland},
          {"/atoll.v1.IslandService/Leave", kOperator | kIsland},
          {"/atoll.v1.IslandService/SignDataUrls",
           kOperator | kIsland | kReader},

          {"/atoll.v1.ServerService/RegisterServer", kOperator | kServer},
          {"/atoll.v1.ServerService/WatchServerPlan", kOperator | kServer},
          {"/atoll.v1.ServerService/ReportShards", kOperator | kServer},

          {"/atoll.v1.EnrolmentService/AnnounceGate", kOperator | kGate},
          {"/atoll.v1.EnrolmentService/ConsumeToken", kOperator | kGate},
          {"/atoll.v1.EnrolmentService/CheckToken", kOperator | kGate},
          {"/atoll.v1.EnrolmentService/RenewCertificate", kOperator | kGate},
          {"/atoll.v1.EnrolmentService/CreateToken", kOperator},
          {"/atoll.v1.EnrolmentService/ListTokens", kOperator},
          {"/atoll.v1.EnrolmentService/RevokeToken", kOperator},
          {"/atoll.v1.EnrolmentService/RevokeIsland", kOperator},
          {"/atoll.v1.EnrolmentService/ListAuditRecords", kOperator},

          {"/atoll.v1.ParameterService/PushOuterGradient", kOperator | kIsland},
          {"/atoll.v1.ParameterService/PullParameters",
           kOperator | kIsland | kReader},
          {"/atoll.v1.ParameterService/ImportParameters", kOperator},
          {"/atoll.v1.ParameterService/PullKept", kOperator},

          {"/grpc.health.v1.Health/Check", kAll},
          {"/grpc.health.v1.Health/Watch", kAll},
          {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           kAll},
      });
  return *table;
}

absl::StatusOr<Caller> CallerFrom(const grpc::AuthContext& context) {
  const auto names = context.FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() != 1) {
    return absl::UnauthenticatedError(
        "the certificate must have exactly one common name, "
        "\"atoll:ROLE:ID\"");
  }
  ASSIGN_OR_RETURN(Caller caller, ParseCommonName(absl::string_view(
                                      names[0].data(), names[0].size())));
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri :
       context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  ASSIGN_OR_RETURN(caller.scope, ParseRunScope(uris, caller.role, caller.id));
  if (!caller.scope.enrolled()) return caller;
  // A name is not enough: the island CA's key may be stolen.
  const auto pems =
      context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const absl::StatusOr<PublicKey> key =
      ReadPublicKey(pems.size() == 1
                        ? std::string(pems[0].data(), pems[0].size())
                        : std::string());
  if (!key.ok()) {
    return absl::UnauthenticatedError("the certificate's key cannot be read");
  }
  caller.scope.key_sha256 = key->sha256;
  return caller;
}

}  // namespace

absl::StatusOr<Caller> ParseCommonName(absl::string_view common_name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(common_name, ':');
  if (parts.size() == 3 && parts[0] == "atoll" &&
      ValidateId("id", parts[2]).ok()) {
    for (int i = 0; i < kRoleCount; ++i) {
      const Role role = static_cast<Role>(i);
      if (parts[1] != RoleName(role)) continue;
      Caller caller;
      caller.role = role;
      caller.id = std::string(parts[2]);
      return caller;
    }
  }
  return absl::UnauthenticatedError(
      "the certificate's common name must be \"atoll:ROLE:ID\" with ROLE "
      "operator, island, server, reader, coordinator, gate or data and ID of "
      "[a-z0-9-]{1,63}");
}

absl::Status CheckRole(absl::string_view method, Role role) {
  const auto row = Table().find(method);
  if (row != Table().end() && (row->second & Bit(role)) != 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the role ", RoleName(role), " may not call ", method));
}

absl::StatusOr<Caller> GetCaller(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  // A TLS listener accepts only peers with a verified certificate.
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return Caller{};
  return CallerFrom(*auth);
}

std::string GetCertificateSha256(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return "";
  const auto pems = auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pems.size() != 1) return "";
  return CertificateSha256(std::string(pems[0].data(), pems[0].size()));
}

std::string GetCallerName(const grpc::ServerContextBase& context) {
  const absl::StatusOr<Caller> caller = GetCaller(context);
  if (caller.ok() && !caller->id.empty()) {
    return absl::StrCat(RoleName(caller->role), ":", caller->id);
  }
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

absl::Status CheckActsFor(const Caller& caller, Role role,
                          absl::string_view id) {
  if (caller.role == Role::kOperator ||
      (caller.role == role && caller.id == id)) {
    return absl::OkStatus();
  }
  return WithReason(
      absl::PermissionDeniedError(absl::StrCat(
          "the ", RoleName(caller.role), " \"", caller.id,
          "\" may not act for the ", RoleName(role), " \"", id, "\"")),
      {"NOT_YOURS",
       {{"role", std::string(RoleName(role))}, {"id", std::string(id)}}});
}

}  // namespace atl::rpc
