// What a gate signs: exactly what the coordinator grants, and nothing but the
// certificate of an island or a reader of one run, for a day.
//
// Pure. Thread-safe.

#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "base/rpc/certificates/authority.h"

namespace atl::coordinator {

// A coordinator that somebody else has taken over cannot get more.
inline constexpr absl::Duration kGrantedMax = absl::Hours(25);

// The content of the certificate that `grant` permits: "atoll:ROLE:NAME", the
// URI of its run, clientAuth alone.
// INTERNAL: the grant is for another role, for no run, or too long, or has a
// malformed name, id or serial number. The message says which.
absl::StatusOr<rpc::CertificateSpec> CheckGrant(
    const v1::CertificateGrant& grant);

}  // namespace atl::coordinator
