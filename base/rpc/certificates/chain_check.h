// Whether a CA stands behind a certificate. Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/rpc/certificates/tls.h"

namespace atl::rpc {

// Checks that a CA of `ca_pem` signed the first certificate of `chain_pem`,
// maybe by CAs that follow in `chain_pem`; that every certificate up to the CA
// is valid at `now`; and that no extended key usage forbids `use`. A CA of
// `ca_pem` may be below another one.
//
// UNAUTHENTICATED: it is not so, in OpenSSL's words. INTERNAL: no memory.
absl::Status CheckChain(const std::string& chain_pem, const std::string& ca_pem,
                        KeyUse use, absl::Time now);

}  // namespace atl::rpc
