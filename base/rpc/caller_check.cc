#include "base/rpc/caller_check.h"

#include <openssl/x509v3.h>

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/codec/sha256.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "grpc/grpc_security_constants.h"

namespace atl::rpc {
namespace {

// Certificates whose answer is remembered. To examine one takes up to 1 ms.
constexpr size_t kRememberedMax = 65536;

std::vector<std::string> AllValues(const grpc::AuthContext& peer,
                                   const char* name) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : peer.FindPropertyValues(name)) {
    values.emplace_back(value.data(), value.size());
  }
  return values;
}

// The value of the property `name` if it occurs exactly once; else empty.
std::string OnlyValue(const grpc::AuthContext& peer, const char* name) {
  const std::vector<std::string> values = AllValues(peer, name);
  return values.size() == 1 ? values.front() : "";
}

// Says what of the files an operator may not have meant.
void WarnAboutTrust(const TlsFiles& files, const TlsMaterial& material,
                    const std::string& who) {
  const std::vector<std::string> upper = FindUpperAuthorities(material.ca_pem);
  if (!upper.empty()) {
    LOG(WARNING) << who << ": \"" << files.ca << "\" holds the CA \""
                 << absl::CHexEscape(upper.front())
                 << "\", which may sign CAs: only certificates that it signed "
                    "itself count. Give the CA that signs them directly, as "
                    "`atoll ca issue` writes it to ca.crt";
  }
  if (material.island_ca_pem.empty()) {
    LOG(INFO) << who << " admits no enrolled island: "
              << (files.dir.empty()
                      ? "--tls-island-ca is not given"
                      : absl::StrCat(IslandCaPath(files), " is missing"));
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<CallerCheck>> CallerCheck::Open(
    const TlsFiles& files, const std::string& who) {
  ASSIGN_OR_RETURN(std::unique_ptr<TlsSource> source,
                   TlsSource::Open(files, KeyUse::kServer, who));
  WarnAboutTrust(files, *source->Get(), who);
  std::shared_ptr<CallerCheck> check(new CallerCheck(std::move(source)));
  check->Refresh();
  return check;
}

std::shared_ptr<const TlsMaterial> CallerCheck::Refresh() {
  MutexLock refresh_lock(&refresh_mutex_);
  std::shared_ptr<const TlsMaterial> material = source_->Get();
  {
    MutexLock lock(&mutex_);
    if (trusted_ != nullptr && material == trusted_->material) return material;
  }
  // TlsSource has read the list once.
  auto trusted = std::make_shared<const Trusted>(
      Trusted{material, TrustAnchors(material->ca_pem),
              TrustAnchors(material->island_ca_pem),
              RevocationList::Read(material->crl_pem, material->ca_pem)
                  .value_or(RevocationList())});
  MutexLock lock(&mutex_);
  trusted_ = std::move(trusted);
  checked_.clear();
  return material;
}

std::string CallerCheck::KeyOf(const grpc::AuthContext& peer) {
  const std::string pem = OnlyValue(peer, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (!peer.IsPeerAuthenticated() || pem.empty()) return "";
  const codec::Sha256Digest digest = codec::ComputeSha256(pem);
  return std::string(digest.begin(), digest.end());
}

bool CallerCheck::Knows(const grpc::AuthContext& peer,
                        const std::string& key) {
  {
    MutexLock lock(&mutex_);
    if (key.empty() || checked_.contains(key)) return true;
  }
  // Refused by its name.
  return !ParseCommonName(OnlyValue(peer, GRPC_X509_CN_PROPERTY_NAME)).ok();
}

absl::Status CallerCheck::CheckCertificate(const grpc::AuthContext& peer,
                                           const std::string& key) {
  return FindCaller(peer, key).status();
}

absl::Status CallerCheck::Check(const grpc::AuthContext& peer,
                                const std::string& key,
                                absl::string_view method) {
  ASSIGN_OR_RETURN(const Caller caller, FindCaller(peer, key));
  return CheckRole(method, caller.role);
}

absl::StatusOr<Caller> CallerCheck::FindCaller(const grpc::AuthContext& peer,
                                               const std::string& key) {
  if (key.empty()) {
    return absl::UnauthenticatedError("a call without a certificate");
  }
  ASSIGN_OR_RETURN(Caller caller, ParseCommonName(OnlyValue(
                                      peer, GRPC_X509_CN_PROPERTY_NAME)));
  RETURN_IF_ERROR(CheckPem(OnlyValue(peer, GRPC_X509_PEM_CERT_PROPERTY_NAME),
                           key, caller,
                           AllValues(peer, GRPC_PEER_URI_PROPERTY_NAME)));
  return caller;
}

absl::Status CallerCheck::CheckIssuer(
    const std::vector<Certificate>& certificate, const Trusted& trusted,
    const Caller& caller, const std::vector<std::string>& uris) {
  ASSIGN_OR_RETURN(const RunScope scope,
                   ParseRunScope(uris, caller.role, caller.id));
  // It stands alone: so only its direct issuer can be found. Whether it has
  // expired is checked at each call.
  const auto is_signed_by = [&](const TrustAnchors& authorities) {
    return authorities
        .Verify(certificate, X509_PURPOSE_SSL_CLIENT, std::nullopt)
        .ok();
  };
  if (is_signed_by(trusted.authorities)) return absl::OkStatus();
  const bool is_role =
      caller.role == Role::kIsland || caller.role == Role::kReader;
  if (is_role && scope.enrolled() && is_signed_by(trusted.island_authorities)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(absl::StrCat(
      "no CA in the listener's --tls-ca is the direct issuer of the "
      "certificate of ",
      RoleName(caller.role), " ", caller.id,
      ", and the island CA may sign only islands and readers of one run"));
}

CallerCheck::Checked CallerCheck::Examine(
    const std::string& pem, const Trusted& trusted, const Caller& caller,
    const std::vector<std::string>& uris) {
  std::vector<Certificate> certificate;
  certificate.push_back(ReadFirstCertificate(pem));
  X509* const read = certificate.front().get();
  if (read == nullptr || CommonNameOf(*read).empty()) {
    return {absl::UnauthenticatedError(
                "the certificate must have exactly one common name, "
                "\"atoll:ROLE:ID\""),
            absl::InfiniteFuture()};
  }
  Checked checked{CheckKeyUse(*read, KeyUse::kClient),
                  ToTime(X509_get0_notAfter(read))};
  if (checked.status.ok()) {
    checked.status = CheckIssuer(certificate, trusted, caller, uris);
  }
  if (checked.status.ok()) {
    checked.status =
        Annotate(trusted.revoked.Check(pem),
                 absl::StrCat(RoleName(caller.role), " ", caller.id));
  }
  return checked;
}

// The expiry is checked here because a connection outlives it, and because
// OpenSSL does not check it when a session is resumed. gRPC shows the first of
// several common names.
absl::Status CallerCheck::CheckPem(const std::string& pem,
                                   const std::string& key,
                                   const Caller& caller,
                                   const std::vector<std::string>& uris) {
  std::shared_ptr<const Trusted> trusted;
  {
    MutexLock lock(&mutex_);
    trusted = trusted_;
    const auto found = checked_.find(key);
    if (found != checked_.end()) return At(found->second, absl::Now());
  }
  Checked checked = Examine(pem, *trusted, caller, uris);
  const absl::Status status = At(checked, absl::Now());
  MutexLock lock(&mutex_);
  if (trusted != trusted_) return status;
  if (checked_.size() >= kRememberedMax) checked_.clear();
  checked_.emplace(key, std::move(checked));
  return status;
}

absl::Status CallerCheck::At(const Checked& checked, absl::Time now) {
  if (now <= checked.end) return checked.status;
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate expired at ",
      absl::FormatTime(absl::RFC3339_sec, checked.end, absl::UTCTimeZone()),
      "; a new one is needed"));
}

}  // namespace atl::rpc
