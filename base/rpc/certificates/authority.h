// A certificate authority: makes the certificates of mutual TLS.
//
// New keys are ECDSA on P-256, signatures SHA-256, serial numbers 128 random
// bits. Pure but for random numbers. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rpc/certificates/revocation_list.h"

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
  // Alternative names that are URIs: printable ASCII, without spaces.
  std::vector<std::string> uris;
  bool server_auth = false;  // Its owner listens.
  bool client_auth = false;  // Its owner dials.
  absl::Time begin;
  absl::Time end;
  std::string serial;  // 16 bytes, big-endian, not zero. Empty: random.
};

// OK if `host` is a DNS name or an IP address, without a port.
// INVALID_ARGUMENT: it is not.
absl::Status CheckCertificateHost(absl::string_view host);

struct CertificateFacts {
  absl::Time begin;
  absl::Time end;
  // How many CAs may be between a CA and a certificate; -1: no limit, or no CA.
  int path_length = -1;
  std::vector<std::string> uris;  // Alternative names that are URIs.
};

// Reads the facts of the first certificate of `cert_pem`.
// INVALID_ARGUMENT: it has no certificate.
absl::StatusOr<CertificateFacts> ReadFacts(const std::string& cert_pem);

// A self-signed CA. At most `path_length` CAs may be between it and a
// certificate: with 0 it signs no other CA.
// INVALID_ARGUMENT: the name is too long.
absl::StatusOr<KeyAndCertificate> MakeAuthority(absl::string_view common_name,
                                                absl::Time begin,
                                                absl::Time end,
                                                int path_length = 0);

// Makes a key and a certificate of a CA below `root`, which signs no other CA.
// The uses of the spec, if there are any, bound those of every certificate
// below. Requires: the spec has neither hosts nor URIs.
// INVALID_ARGUMENT: as IssueCertificate; `root` signs no other CA.
absl::StatusOr<KeyAndCertificate> IssueAuthority(const KeyAndCertificate& root,
                                                 const CertificateSpec& spec);

// Makes a key and a certificate for it that `authority` signs. The certificate
// ends no later than the authority's.
// INVALID_ARGUMENT: the name is too long; a host, a URI or the serial number is
// malformed; `authority` is not a CA's certificate with its key.
absl::StatusOr<KeyAndCertificate> IssueCertificate(
    const KeyAndCertificate& authority, const CertificateSpec& spec);

// As IssueCertificate, for a public key that somebody else has made (a
// SubjectPublicKeyInfo, DER). Returns the certificate, PEM.
// INVALID_ARGUMENT: also: `key_der` is not a key on P-256, on P-384, of
// Ed25519, or of RSA with 2048 to 8192 bits.
absl::StatusOr<std::string> IssueCertificateForKey(
    const KeyAndCertificate& authority, const CertificateSpec& spec,
    const std::string& key_der);

// The first certificate of `cert_pem` again, with another validity and a random
// serial number; key, names and uses stay. It may have expired. It ends no
// later than the authority's, unless it is the authority's own.
// INVALID_ARGUMENT: `authority` did not sign it, or is not a CA's certificate
// with its key.
absl::StatusOr<std::string> ReissueCertificate(
    const KeyAndCertificate& authority, const std::string& cert_pem,
    absl::Time begin, absl::Time end);

// A list that `authority` signs, PEM.
// INVALID_ARGUMENT: a serial number is malformed, or `authority` is not a CA's
// certificate with its key.
absl::StatusOr<std::string> MakeRevocationList(
    const KeyAndCertificate& authority,
    const std::vector<RevokedCertificate>& revoked, absl::Time now);

}  // namespace atl::rpc
