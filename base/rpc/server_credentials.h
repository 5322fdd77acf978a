// A listener's side of mutual TLS.
//
//   * A peer without a valid certificate of a CA cannot finish the handshake.
//   * A certificate counts only if a CA of --tls-ca signed it directly, not
//     through a CA below. One of --tls-island-ca counts for an island or a
//     reader of one run (base/identity/identity.h, enrolled), and for nothing
//     else.
//   * Before any handler, every call is checked: the certificate's extended key
//     usage includes clientAuth, it has not expired, crl.pem of --tls-dir does
//     not name it, and its role may call the method
//     (base/rpc/authorization.h). Otherwise the call ends with UNAUTHENTICATED
//     or PERMISSION_DENIED, whose message says why.
//   * The files are read again when they change (tls_source.h). New connections
//     use the new content. Open ones stay, but within a second their calls are
//     judged by it too.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/call_guard.h"
#include "base/rpc/certificates/tls.h"
#include "grpcpp/security/server_credentials.h"

namespace atl::rpc {

// Makes the credentials of one port. `who` names the listener in the log. `guard`
// admits the calls that pass the checks.
// Errors as TlsSource::Open.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files, const std::string& who,
    std::shared_ptr<CallGuard> guard);

}  // namespace atl::rpc
