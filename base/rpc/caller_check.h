// Whether a TLS listener serves a caller: its certificate, and its role.
//
// A peer without a valid certificate of a CA cannot finish the handshake. That
// is too little, so each call is checked again (call_guard.h):
//   * the certificate has one common name, and its extended key usage includes
//     clientAuth; it has not expired; crl.pem of --tls-dir does not name it;
//   * a CA of --tls-ca signed it directly, not through a CA below. A
//     certificate that --tls-island-ca signed counts for an island or a reader
//     of one run (base/identity/identity.h, enrolled), and for nothing else;
//   * its role may call the method (authorization.h).
//
// The files are read again when they change (tls_source.h): at each handshake,
// and once a second by the guard, because an open connection makes no handshake.
//
// Thread-safe.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rpc/authorization.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/tls_source.h"
#include "base/rpc/certificates/x509.h"
#include "base/sync/mutex.h"
#include "grpcpp/security/auth_context.h"

namespace atl::rpc {

class CallerCheck {
 public:
  // `who` names the listener in the log. Errors as TlsSource::Open.
  static absl::StatusOr<std::shared_ptr<CallerCheck>> Open(
      const TlsFiles& files, const std::string& who);

  // The files' content. Callers are judged by it from now on.
  std::shared_ptr<const TlsMaterial> Refresh();

  // The SHA-256 of the peer's certificate, as its PEM text; empty: it has shown
  // none.
  static std::string KeyOf(const grpc::AuthContext& peer);

  // True if the next two answer at once. They take up to 1 ms for a certificate
  // that they see for the first time.
  bool Knows(const grpc::AuthContext& peer, const std::string& key);

  // OK if the peer's certificate counts, whatever it calls. `key`: KeyOf(peer).
  // UNAUTHENTICATED: it does not; the message says why.
  absl::Status CheckCertificate(const grpc::AuthContext& peer,
                                const std::string& key);

  // OK if the peer's certificate counts and its role may call `method`
  // ("/atoll.v1.RunService/GetRun"). `key`: KeyOf(peer).
  // UNAUTHENTICATED, PERMISSION_DENIED: otherwise.
  absl::Status Check(const grpc::AuthContext& peer, const std::string& key,
                     absl::string_view method);

 private:
  // The answer about a certificate, until it expires.
  struct Checked {
    absl::Status status;
    absl::Time end;
  };

  // The TLS files and what was read of them: reading takes longer than a check.
  struct Trusted {
    std::shared_ptr<const TlsMaterial> material;
    TrustAnchors authorities;
    TrustAnchors island_authorities;
    RevocationList revoked;
  };

  explicit CallerCheck(std::unique_ptr<TlsSource> source)
      : source_(std::move(source)) {}

  static absl::Status At(const Checked& checked, absl::Time now);
  absl::StatusOr<Caller> FindCaller(const grpc::AuthContext& peer,
                                    const std::string& key);
  // A certificate that a CA of --tls-ca signed may name any role. One of the
  // island CA counts only if it is an enrolled one. gRPC has checked that it is
  // below one of the two, by any chain that the peer sent. That is too little:
  // an upper CA in --tls-ca would stand for all CAs below it.
  static absl::Status CheckIssuer(const std::vector<Certificate>& certificate,
                                  const Trusted& trusted, const Caller& caller,
                                  const std::vector<std::string>& uris);
  static Checked Examine(const std::string& pem, const Trusted& trusted,
                         const Caller& caller,
                         const std::vector<std::string>& uris);
  absl::Status CheckPem(const std::string& pem, const std::string& key,
                        const Caller& caller,
                        const std::vector<std::string>& uris);

  const std::unique_ptr<TlsSource> source_;

  Mutex refresh_mutex_;  // Before mutex_. So the newest files come last.
  Mutex mutex_;
  // The newest; what checked_ is about.
  std::shared_ptr<const Trusted> trusted_ ABSL_GUARDED_BY(mutex_);
  // By KeyOf. Other certificates that a peer sends decide nothing.
  absl::flat_hash_map<std::string, Checked> checked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
