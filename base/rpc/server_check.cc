#include "base/rpc/server_check.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/authorization.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

// X.509's limit of a common name; a stranger's certificate may exceed it.
constexpr size_t kShownBytesMax = 64;

absl::Status CheckChain(const std::vector<Certificate>& chain,
                        const std::string& chain_pem, const std::string& ca_pem,
                        absl::string_view ca_name, absl::Time now) {
  const absl::Status verified =
      VerifyChain(chain, ca_pem, X509_PURPOSE_SSL_SERVER, now);
  if (!absl::IsUnauthenticated(verified)) return verified;
  // The cases that a person can act on have texts of their own.
  RETURN_IF_ERROR(CheckValidity(chain_pem, now));
  RETURN_IF_ERROR(CheckKeyUse(*chain[0], KeyUse::kServer));
  return absl::UnauthenticatedError(
      absl::StrCat(ca_name, " did not sign it: ", verified.message()));
}

absl::Status CheckHost(X509& certificate, absl::string_view dialled) {
  // Certificates list names without the dot that may end them.
  const std::string host = ToComparedHost(dialled);
  constexpr unsigned int kFlags = X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                  X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
  // -2: the host is not an IP address. Only then it is compared with names.
  const int as_ip = X509_check_ip_asc(&certificate, host.c_str(), kFlags);
  const bool fits =
      as_ip == 1 ||
      (as_ip == -2 && X509_check_host(&certificate, host.data(), host.size(),
                                      kFlags, nullptr) == 1);
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "is not for the host ", host,
      ": dial a name that it lists, or issue one with --host ", host));
}

}  // namespace

absl::Status CheckServerCertificate(const std::string& chain_pem,
                                    const std::string& ca_pem,
                                    const HostPort& dialled, Role role,
                                    absl::Time now, absl::string_view ca_name) {
  const std::string which = absl::StrCat(
      kServerCheckPrefix, JoinHostPort(dialled.host, dialled.port));
  const auto refuse = [&](absl::string_view verb, const absl::Status& why) {
    return absl::UnauthenticatedError(absl::StrCat(which, verb, why.message()));
  };
  const std::vector<Certificate> chain = ReadCertificates(chain_pem);
  if (chain.empty()) {
    return absl::UnauthenticatedError(absl::StrCat(which, " is missing"));
  }
  const std::string name = CommonNameOf(*chain[0]);
  // A stranger may have chosen it: it must not write lines of its own.
  const std::string text = absl::CHexEscape(name.substr(0, kShownBytesMax));
  const std::string shown = absl::StrCat(" (", text, ") is refused: ");
  if (const absl::Status status =
          CheckChain(chain, chain_pem, ca_pem, ca_name, now);
      !status.ok()) {
    return refuse(shown, status);
  }
  if (const absl::Status status = CheckKeyUse(*chain[0], KeyUse::kServer);
      !status.ok()) {
    return refuse(shown, status);
  }
  if (const absl::Status status = CheckHost(*chain[0], dialled.host);
      !status.ok()) {
    return refuse(absl::StrCat(" (", text, ") "), status);
  }
  const absl::StatusOr<Caller> caller = ParseCommonName(name);
  if (!caller.ok()) return refuse(shown, caller.status());
  if (caller->role != role) {
    return absl::UnauthenticatedError(
        absl::StrCat(which, " is ", name, ", not a ", RoleName(role), "'s"));
  }
  return absl::OkStatus();
}

}  // namespace atl::rpc
