// Decides whether a caller may trust the certificate that a listener shows.
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/identity/identity.h"

namespace atl::rpc {

// How the message of CheckServerCertificate begins.
inline constexpr char kServerCheckPrefix[] = "the certificate of ";

// Checks the certificate chain that the listener at `dialled` shows, the
// listener's own first:
//   * a CA of `ca_pem` signed it, and every certificate is valid at `now`;
//   * its extended key usage includes serverAuth;
//   * it names the dialled host (a wildcard stands for a whole label);
//   * its common name is "atoll:ROLE:ID" with the role `role`.
//
// UNAUTHENTICATED: one of them is not so. The message says which, for a person:
// "the certificate of c.example.org:7400 is atoll:island:x, not a
// coordinator's". `ca_name` is what it calls the CA.
absl::Status CheckServerCertificate(
    const std::string& chain_pem, const std::string& ca_pem,
    const HostPort& dialled, Role role, absl::Time now,
    absl::string_view ca_name = "the CA in --tls-ca");

}  // namespace atl::rpc
