// The certificates that a CA has issued, and those of them that are revoked.
//
// issued.txt in the CA's directory has a line for each certificate of `atoll ca
// issue` and `atoll ca renew`: serial number, end and name. crl.pem is the list
// of the revoked ones, which the service CA signs.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/ca/authority_directory.h"

namespace atl::cli {

struct IssuedCertificate {
  std::string serial;  // Hex digits.
  absl::Time end;
  std::string common_name;
  std::optional<absl::Time> revoked;  // When.
};

// Adds the first certificate of `cert_pem` to the CA's issued.txt; a CA in
// memory has none. Otherwise as the file system.
absl::Status RecordIssued(const Ca& ca, const std::string& cert_pem);

// The certificates of issued.txt in their order. A line that is torn is left
// out. INVALID_ARGUMENT: crl.pem is not this CA's list. Otherwise as the file
// system.
absl::StatusOr<std::vector<IssuedCertificate>> ListIssued(const Ca& ca);

// Revokes certificates for good, and returns them. Each of `which` names one or
// several: a directory of `atoll ca issue` or a certificate's file; ROLE:ID, for
// all of this name that have not expired; or a serial number. To revoke again
// changes nothing. NOT_FOUND: one stands for no certificate; then none is
// revoked. INVALID_ARGUMENT: the CA did not sign a file. Otherwise as
// ListIssued.
absl::StatusOr<std::vector<IssuedCertificate>> RevokeCertificates(
    const Ca& ca, const std::vector<std::string>& which, absl::Time now);

}  // namespace atl::cli
