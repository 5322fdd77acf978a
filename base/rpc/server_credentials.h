// A listener's side of mutual TLS: the handshake, with the newest certificate.
//
// A peer without a valid certificate of a CA of --tls-ca or --tls-island-ca
// cannot finish it. Each call then checks the certificate (caller_check.h).

#pragma once

#include <memory>

#include "base/rpc/caller_check.h"
#include "grpcpp/security/server_credentials.h"

namespace atl::rpc {

// Makes the credentials of one port, with the certificate that `check` has.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    std::shared_ptr<CallerCheck> check);

}  // namespace atl::rpc
