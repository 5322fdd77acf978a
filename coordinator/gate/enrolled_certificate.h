// The certificate with which an island or a reader comes back for the next one.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "base/rpc/certificates/public_key.h"

namespace atl::coordinator {

struct EnrolledCertificate {
  v1::EnrolledIdentity identity;  // run_id is empty: no certificate has it.
  rpc::PublicKey key;
};

// Checks the first certificate of `chain_pem`: a CA of `island_ca_pem` signed
// it; it is valid, or expired at most kRenewableAfterEnd before `now`; it is for
// clients; and it names an island or a reader of one run.
// UNAUTHENTICATED: one of them is not so. The message says what to do.
absl::StatusOr<EnrolledCertificate> CheckEnrolledCertificate(
    const std::string& chain_pem, const std::string& island_ca_pem,
    absl::Time now);

}  // namespace atl::coordinator
