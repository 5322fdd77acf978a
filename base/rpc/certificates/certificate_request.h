// Requests for certificates (PKCS #10): made by the key's owner, read by a CA
// that takes nothing from them but the key.
//
// Pure but for random numbers. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/certificates/public_key.h"

namespace atl::rpc {

// A private key, PEM, and the request for its certificate, DER.
struct KeyAndRequest {
  std::string key_pem;
  std::string request_der;
};

// A new key on P-256.
absl::StatusOr<KeyAndRequest> MakeKeyAndRequest();

// The request for a certificate of `key_pem`.
// INVALID_ARGUMENT: it is no key without a password.
absl::StatusOr<std::string> MakeCertificateRequest(const std::string& key_pem);

// The key of a request. Its signature proves that its maker has the private
// key. Keys are on the named curves P-256 and P-384, of Ed25519, or of RSA with
// 2048 to 4096 bits.
// INVALID_ARGUMENT: the request is malformed, its signature is wrong, or its
// key is of another kind.
absl::StatusOr<PublicKey> ReadCertificateRequest(
    const std::string& request_der);

}  // namespace atl::rpc
