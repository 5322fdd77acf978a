// Lists of revoked certificates: CRLs (RFC 5280), which openssl reads too.
// MakeRevocationList (base/rpc/certificates/authority.h) makes them.
//
// A list counts for the certificates of the CA that signed it. Its nextUpdate
// is the end of that CA: a list has no other end, because a program that waited
// for a newer one would stop.
//
// Pure. Thread-safe.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace atl::rpc {

struct RevokedCertificate {
  std::string serial;  // Hex digits in lower case, as ReadSerial.
  absl::Time time;     // When it was revoked, in whole seconds.
};

// The serial number of the first certificate of `cert_pem`.
// INVALID_ARGUMENT: it has no certificate.
absl::StatusOr<std::string> ReadSerial(const std::string& cert_pem);

class RevocationList {
 public:
  // A list without entries.
  RevocationList() = default;

  // Reads all lists of `crl_pem`, which may be empty.
  // INVALID_ARGUMENT: it holds anything else than lists, or no CA of `ca_pem`
  // signed one of them.
  static absl::StatusOr<RevocationList> Read(const std::string& crl_pem,
                                             const std::string& ca_pem);

  // All entries, by time.
  std::vector<RevokedCertificate> entries() const;

  // When the first certificate of `cert_pem` was revoked; nullopt: it was not.
  std::optional<absl::Time> FindTime(const std::string& cert_pem) const;

  // UNAUTHENTICATED: the first certificate of `cert_pem` was revoked.
  absl::Status Check(const std::string& cert_pem) const;

 private:
  // By the issuer's name (DER) and the serial number.
  absl::flat_hash_map<std::pair<std::string, std::string>, absl::Time> times_;
};

}  // namespace atl::rpc
