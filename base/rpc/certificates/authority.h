// A certificate authority: makes the certificates of mutual TLS.
//
// Keys are ECDSA on P-256, signatures SHA-256, serial numbers 128 random bits.
// Pure but for random numbers. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::rpc {

// A certificate and its private key, both PEM.
struct KeyAndCertificate {
  std::string key_pem;
  std::string cert_pem;
};

// The contents of a certificate.
struct CertificateSpec {
  std::string common_name;  // At most 64 bytes.
  // DNS names and IP addresses that others dial; may be empty.
  std::vector<std::string> hosts;
  bool server_auth = false;  // Its owner listens.
  bool client_auth = false;  // Its owner dials.
  absl::Time begin;
  absl::Time end;
};

// OK if `host` is a DNS name or an IP address, without a port.
// INVALID_ARGUMENT: it is not.
absl::Status CheckCertificateHost(absl::string_view host);

// A self-signed CA that may sign certificates, but no other CAs.
// INVALID_ARGUMENT: the name is too long.
absl::StatusOr<KeyAndCertificate> MakeAuthority(absl::string_view common_name,
                                                absl::Time begin,
                                                absl::Time end);

// Makes a key and a certificate for it that `authority` signs. The certificate
// ends no later than the authority's.
// INVALID_ARGUMENT: the name is too long; a host is malformed; `authority` is
// not a CA's certificate with its key.
absl::StatusOr<KeyAndCertificate> IssueCertificate(
    const KeyAndCertificate& authority, const CertificateSpec& spec);

}  // namespace atl::rpc
