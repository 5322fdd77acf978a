#include "coordinator/gate/grant_check.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/identity/identity.h"
#include "base/layout/ids.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr size_t kSerialBytes = 16;

std::optional<Role> ToRole(v1::EnrolledRole role) {
  switch (role) {
    case v1::ENROLLED_ROLE_ISLAND:
      return Role::kIsland;
    case v1::ENROLLED_ROLE_READER:
      return Role::kReader;
    default:
      return std::nullopt;
  }
}

absl::Status Refused(absl::string_view why) {
  return absl::InternalError(
      absl::StrCat("the gate does not sign what the coordinator grants: ", why,
                   "; tell the operator of the run"));
}

}  // namespace

absl::StatusOr<rpc::CertificateSpec> CheckGrant(
    const v1::CertificateGrant& grant) {
  const v1::EnrolledIdentity& identity = grant.identity();
  const std::optional<Role> role = ToRole(identity.role());
  if (!role.has_value()) return Refused("the role is no island's or reader's");
  if (!ValidateId("", identity.name()).ok()) return Refused("the name");
  rpc::CertificateSpec spec;
  spec.common_name =
      absl::StrCat("atoll:", RoleName(*role), ":", identity.name());
  spec.uris = {MakeEnrolledUri(identity.cluster_id(), identity.run_uid(), *role,
                               identity.name())};
  // Whoever reads the certificate must find the same run in it, and one alone.
  const absl::StatusOr<RunScope> scope =
      ParseRunScope(spec.uris, *role, identity.name());
  if (!scope.ok() || !scope->enrolled() ||
      scope->run_uid != identity.run_uid() ||
      scope->cluster_id != identity.cluster_id()) {
    return Refused("the run");
  }
  if (grant.serial().size() != kSerialBytes ||
      grant.serial() == std::string(kSerialBytes, '\0')) {
    return Refused("the serial number");
  }
  spec.serial = grant.serial();
  spec.client_auth = true;
  spec.begin = FromProto(grant.begin_time());
  spec.end = FromProto(grant.end_time());
  if (!grant.has_begin_time() || !grant.has_end_time() ||
      spec.end <= spec.begin || spec.end - spec.begin > kGrantedMax) {
    return Refused(
        absl::StrCat("the time; at most ", absl::FormatDuration(kGrantedMax)));
  }
  return spec;
}

}  // namespace atl::coordinator
