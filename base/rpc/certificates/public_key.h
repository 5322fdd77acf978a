// Public keys of certificates, and pins, which name them.
//
// Pure. Thread-safe.

#pragma once

#include <openssl/x509.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::rpc {

struct PublicKey {
  std::string der;     // SubjectPublicKeyInfo.
  std::string sha256;  // SHA-256 of `der`, 32 bytes.
};

// The key in DER, which depends on the key alone.
// INTERNAL: OpenSSL cannot.
absl::StatusOr<PublicKey> ToPublicKey(EVP_PKEY& key);

// Reads the key of the first certificate of `cert_pem`.
// INVALID_ARGUMENT: it has no certificate.
absl::StatusOr<PublicKey> ReadPublicKey(const std::string& cert_pem);

// base64url of the SHA-256, without padding: 43 characters.
std::string ToPin(const PublicKey& key);

// Returns the certificate of `chain_pem` whose key has the pin, as PEM.
// NOT_FOUND: no key has it.
absl::StatusOr<std::string> FindPinned(const std::string& chain_pem,
                                       absl::string_view pin);

// The last certificate of `chain_pem`, as PEM, if it is a self-signed CA's.
// NOT_FOUND: it is not, or the chain is empty.
absl::StatusOr<std::string> FindRoot(const std::string& chain_pem);

}  // namespace atl::rpc
