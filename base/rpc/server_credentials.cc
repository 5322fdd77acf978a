#include "base/rpc/server_credentials.h"

#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/obs/log.h"
#include "base/rpc/authorization.h"
#include "base/rpc/status.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/certificates/tls_source.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "grpc/grpc_security.h"
#include "grpc/grpc_security_constants.h"

namespace atl::rpc {
namespace {

// gRPC replaces the old certificate under its lock, but a handshake reads it
// just after that lock (ssl_security_connector.cc, add_handshakers). A
// replacement waits for so long, with the lock: then no such handshake is
// left. It happens once for each new certificate.
constexpr absl::Duration kReplaceAfter = absl::Milliseconds(50);

// How often calls look whether the files have changed.
constexpr absl::Duration kLookEvery = absl::Seconds(1);

// Certificates whose answer is remembered. To parse one takes up to 1 ms.
constexpr size_t kRememberedMax = 65536;

// The value of the property `name` if it occurs exactly once; else empty.
absl::string_view OnlyValue(const grpc_auth_context* context,
                            const char* name) {
  grpc_auth_property_iterator properties =
      grpc_auth_context_find_properties_by_name(context, name);
  const grpc_auth_property* const first =
      grpc_auth_property_iterator_next(&properties);
  if (first == nullptr ||
      grpc_auth_property_iterator_next(&properties) != nullptr) {
    return "";
  }
  return {first->value, first->value_length};
}

std::vector<std::string> AllValues(const grpc_auth_context* context,
                                   const char* name) {
  std::vector<std::string> values;
  grpc_auth_property_iterator properties =
      grpc_auth_context_find_properties_by_name(context, name);
  while (const grpc_auth_property* const property =
             grpc_auth_property_iterator_next(&properties)) {
    values.emplace_back(property->value, property->value_length);
  }
  return values;
}

absl::string_view TextOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

// The state of a port's credentials; gRPC's object owns it.
class Port {
 public:
  Port(std::unique_ptr<TlsSource> source, std::shared_ptr<CallGuard> guard)
      : source_(std::move(source)), guard_(std::move(guard)) {
    MutexLock lock(&checked_mutex_);
    Trust(source_->Get());
  }

  // gRPC's callback, at the start of every handshake.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* port, grpc_ssl_server_certificate_config** config) {
    return static_cast<Port*>(port)->Fetch(config);
  }

  // gRPC's authentication step, for every call.
  static void Process(void* port, grpc_auth_context* context,
                      const grpc_metadata* metadata, size_t count,
                      grpc_process_auth_metadata_done_cb done,
                      void* user_data) {
    const grpc::Status status = ToGrpc(
        static_cast<Port*>(port)->CheckCall(context, metadata, count));
    done(user_data, nullptr, 0, nullptr, 0,
         static_cast<grpc_status_code>(status.error_code()),
         status.error_message().c_str());
  }

  static void Destroy(void* port) {
    const std::unique_ptr<Port> owned(static_cast<Port*>(port));
  }

 private:
  grpc_ssl_certificate_config_reload_status Fetch(
      grpc_ssl_server_certificate_config** config) {
    MutexLock lock(&fetch_mutex_);
    std::shared_ptr<const TlsMaterial> material = source_->Get();
    if (material == used_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    if (used_ != nullptr) absl::SleepFor(kReplaceAfter);
    const grpc_ssl_pem_key_cert_pair pair = {material->key_pem.c_str(),
                                             material->cert_pem.c_str()};
    *config = grpc_ssl_server_certificate_config_create(
        absl::StrCat(material->ca_pem, "\n", material->island_ca_pem).c_str(),
        &pair, 1);
    {
      MutexLock lock(&checked_mutex_);
      Trust(material);
    }
    used_ = std::move(material);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  // Judges callers by `material` from now on.
  void Trust(std::shared_ptr<const TlsMaterial> material)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checked_mutex_) {
    if (material == trusted_) return;
    // TlsSource has read the list once.
    revoked_ = std::make_shared<const RevocationList>(
        RevocationList::Read(material->crl_pem, material->ca_pem)
            .value_or(RevocationList()));
    trusted_ = std::move(material);
    checked_.clear();
  }

  // An open connection makes no handshake: its calls look for new files.
  void LookAgain(absl::Time now) {
    {
      MutexLock lock(&checked_mutex_);
      if (now < look_again_) return;
      look_again_ = now + kLookEvery;
    }
    std::shared_ptr<const TlsMaterial> material = source_->Get();
    MutexLock lock(&checked_mutex_);
    Trust(std::move(material));
  }

  absl::Status CheckCall(const grpc_auth_context* context,
                         const grpc_metadata* metadata, size_t count) {
    absl::string_view method;
    for (size_t i = 0; i < count; ++i) {
      if (TextOf(metadata[i].key) == ":path") {
        method = TextOf(metadata[i].value);
      }
    }
    if (method.empty()) {
      return absl::PermissionDeniedError("a call without a method");
    }
    LookAgain(absl::Now());
    ASSIGN_OR_RETURN(
        const Caller caller,
        ParseCommonName(OnlyValue(context, GRPC_X509_CN_PROPERTY_NAME)));
    const std::string pem(
        OnlyValue(context, GRPC_X509_PEM_CERT_PROPERTY_NAME));
    RETURN_IF_ERROR(CheckCertificate(
        pem, caller,
        std::string(
            OnlyValue(context, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME)),
        AllValues(context, GRPC_PEER_URI_PROPERTY_NAME)));
    RETURN_IF_ERROR(CheckRole(method, caller.role));
    return guard_->Admit(pem, absl::StrCat(RoleName(caller.role), " ", caller.id));
  }

  // The answer about a certificate, until it expires.
  struct Checked {
    absl::Status status;
    absl::Time end;
  };

  // OK if the certificate has exactly one common name (gRPC shows the first of
  // several), permits clientAuth, has not expired, is not revoked, and names
  // nothing that its CA may not sign. The expiry is checked here because a connection outlives
  // it, and because OpenSSL does not check it when a session is resumed.
  absl::Status CheckCertificate(const std::string& pem, const Caller& caller,
                                const std::string& others_pem,
                                const std::vector<std::string>& uris) {
    // The peer chooses which other certificates it sends.
    const std::string chain_pem = absl::StrCat(pem, "\n", others_pem);
    std::string digest(SHA256_DIGEST_LENGTH, '\0');
    SHA256(reinterpret_cast<const unsigned char*>(chain_pem.data()),
           chain_pem.size(), reinterpret_cast<unsigned char*>(digest.data()));
    std::shared_ptr<const TlsMaterial> trusted;
    std::shared_ptr<const RevocationList> revoked;
    {
      MutexLock lock(&checked_mutex_);
      trusted = trusted_;
      revoked = revoked_;
      const auto found = checked_.find(digest);
      if (found != checked_.end()) return At(found->second, absl::Now());
    }
    const Certificate certificate = ReadFirstCertificate(pem);
    if (certificate == nullptr || CommonNameOf(*certificate).empty()) {
      return absl::UnauthenticatedError(
          "the certificate must have exactly one common name, "
          "\"atoll:ROLE:ID\"");
    }
    Checked checked{CheckKeyUse(pem, KeyUse::kClient),
                    ToTime(X509_get0_notAfter(certificate.get()))};
    if (checked.status.ok()) {
      checked.status = CheckIssuer(pem, *trusted, caller, uris);
    }
    if (checked.status.ok()) {
      checked.status = Annotate(
          revoked->Check(pem),
          absl::StrCat(RoleName(caller.role), " ", caller.id));
    }
    const absl::Status status = At(checked, absl::Now());
    MutexLock lock(&checked_mutex_);
    if (trusted != trusted_) return status;
    if (checked_.size() >= kRememberedMax) checked_.clear();
    checked_.emplace(std::move(digest), std::move(checked));
    return status;
  }

  // A certificate that a CA of --tls-ca signed may name any role. One of the
  // island CA counts only if it is an enrolled one. gRPC has checked that it is
  // below one of the two, by any chain that the peer sent. That is too little:
  // an upper CA in --tls-ca would stand for all CAs below it.
  static absl::Status CheckIssuer(const std::string& pem,
                                  const TlsMaterial& trusted,
                                  const Caller& caller,
                                  const std::vector<std::string>& uris) {
    ASSIGN_OR_RETURN(const RunScope scope,
                     ParseRunScope(uris, caller.role, caller.id));
    // Alone: then only its direct issuer can be found.
    std::vector<Certificate> chain;
    chain.push_back(ReadFirstCertificate(pem));
    // Whether a certificate has expired is checked at each call.
    const auto is_signed_by = [&chain](const std::string& ca_pem) {
      return VerifyChain(chain, ca_pem, X509_PURPOSE_SSL_CLIENT, std::nullopt)
          .ok();
    };
    if (is_signed_by(trusted.ca_pem)) return absl::OkStatus();
    const bool is_role =
        caller.role == Role::kIsland || caller.role == Role::kReader;
    if (is_role && scope.enrolled() &&
        is_signed_by(trusted.island_ca_pem)) {
      return absl::OkStatus();
    }
    return absl::UnauthenticatedError(absl::StrCat(
        "no CA in the listener's --tls-ca is the direct issuer of the "
        "certificate of ",
        RoleName(caller.role), " ", caller.id,
        ", and the island CA may sign only islands and readers of one run"));
  }

  static absl::Status At(const Checked& checked, absl::Time now) {
    if (now <= checked.end) return checked.status;
    return absl::UnauthenticatedError(absl::StrCat(
        "the certificate expired at ",
        absl::FormatTime(absl::RFC3339_sec, checked.end, absl::UTCTimeZone()),
        "; a new one is needed"));
  }

  const std::unique_ptr<TlsSource> source_;
  const std::shared_ptr<CallGuard> guard_;

  Mutex fetch_mutex_;
  // The TLS files that gRPC uses; null before its first Fetch.
  std::shared_ptr<const TlsMaterial> used_ ABSL_GUARDED_BY(fetch_mutex_);

  Mutex checked_mutex_;
  // The newest TLS files, and their list; what checked_ is about.
  std::shared_ptr<const TlsMaterial> trusted_ ABSL_GUARDED_BY(checked_mutex_);
  std::shared_ptr<const RevocationList> revoked_
      ABSL_GUARDED_BY(checked_mutex_);
  absl::Time look_again_ ABSL_GUARDED_BY(checked_mutex_) =
      absl::InfinitePast();
  // By the certificate's SHA-256.
  absl::flat_hash_map<std::string, Checked> checked_
      ABSL_GUARDED_BY(checked_mutex_);
};

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

class Credentials : public grpc::ServerCredentials {
 public:
  // Takes over `credentials`.
  explicit Credentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  // Not supported: the authentication step is ours.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files, const std::string& who,
    std::shared_ptr<CallGuard> guard) {
  ASSIGN_OR_RETURN(std::unique_ptr<TlsSource> source,
                   TlsSource::Open(files, KeyUse::kServer, who));
  WarnAboutTrust(files, *source->Get(), who);
  auto port = std::make_unique<Port>(std::move(source), std::move(guard));
  grpc_server_credentials* const credentials =
      grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
              &Port::Fetch, port.get()));
  grpc_server_credentials_set_auth_metadata_processor(
      credentials, {&Port::Process, &Port::Destroy, port.release()});
  return std::make_shared<Credentials>(credentials);
}

}  // namespace atl::rpc
