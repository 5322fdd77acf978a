#include "coordinator/gate/enrolled_certificate.h"

#include <openssl/x509v3.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/identity/identity.h"
#include "base/rpc/authorization.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

absl::Status Refused(absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("the gate does not accept this certificate: ", why));
}

}  // namespace

absl::StatusOr<EnrolledCertificate> CheckEnrolledCertificate(
    const std::string& chain_pem, const std::string& island_ca_pem,
    absl::Time now) {
  const absl::StatusOr<rpc::CertificateFacts> facts = rpc::ReadFacts(chain_pem);
  if (!facts.ok()) {
    return absl::UnauthenticatedError(
        "no certificate was shown; give the island's certificate and key");
  }
  if (facts->end < now - kRenewableAfterEnd) {
    return Refused(
        "it expired more than 30 days ago; ask for a new join string");
  }
  if (now < facts->begin) {
    return Refused("it is not yet valid; is this gate's clock right?");
  }
  // Its own time is checked above, and the island CA may have been renewed since.
  const absl::Status trusted =
      rpc::VerifyChain(rpc::ReadCertificates(chain_pem), island_ca_pem,
                       X509_PURPOSE_SSL_CLIENT, std::nullopt);
  if (!trusted.ok()) {
    return Refused(absl::StrCat("this gate's island CA does not vouch for it: ",
                                trusted.message()));
  }
  const absl::Status use = rpc::CheckKeyUse(chain_pem, rpc::KeyUse::kClient);
  if (!use.ok()) return Refused(use.message());
  const absl::StatusOr<std::string> name = rpc::ReadCommonName(chain_pem);
  if (!name.ok()) return Refused(name.status().message());
  const absl::StatusOr<rpc::Caller> owner = rpc::ParseCommonName(*name);
  if (!owner.ok()) return Refused(owner.status().message());
  const absl::StatusOr<RunScope> scope =
      ParseRunScope(facts->uris, owner->role, owner->id);
  if (!scope.ok()) return Refused(scope.status().message());
  if (!scope->enrolled() ||
      (owner->role != Role::kIsland && owner->role != Role::kReader)) {
    return Refused(
        "no gate made it; `atoll ca renew` renews those of `atoll ca issue`");
  }
  EnrolledCertificate enrolled;
  enrolled.identity.set_cluster_id(scope->cluster_id);
  enrolled.identity.set_run_uid(scope->run_uid);
  enrolled.identity.set_role(owner->role == Role::kIsland
                                 ? v1::ENROLLED_ROLE_ISLAND
                                 : v1::ENROLLED_ROLE_READER);
  enrolled.identity.set_name(owner->id);
  ASSIGN_OR_RETURN(enrolled.key, rpc::ReadPublicKey(chain_pem));
  return enrolled;
}

}  // namespace atl::coordinator
