// Decides which role may call which method: one table, default deny.
//
// A caller's role:
//   * plaintext (loopback, or --insecure): operator;
//   * mutual TLS: from the certificate's common name "atoll:ROLE:ID". ROLE is
//     operator, island, server, reader, coordinator or gate; ID matches
//     [a-z0-9-]{1,63} (X.509 limits the whole name to 64 bytes).
//
// Under TLS every call is checked before its handler (base/rpc/call_guard.h). So
// a handler cannot forget the check. Handlers check whose objects a role may
// touch: CheckActsFor.
//
// Pure except the functions of a running call. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/identity/identity.h"

namespace grpc {
class ServerContextBase;
}

namespace atl::rpc {

struct Caller {
  Role role = Role::kOperator;
  std::string id;  // Empty in plaintext, where callers name themselves.
  RunScope scope = {.any = true};  // The runs that it may touch.
};

// The caller that a certificate's common name stands for, for every run.
// UNAUTHENTICATED: `common_name` is not "atoll:ROLE:ID".
absl::StatusOr<Caller> ParseCommonName(absl::string_view common_name);

// OK if `role` may call `method` ("/atoll.v1.RunService/GetRun").
// PERMISSION_DENIED: it may not, or the method is not in the table. Without
// details: so callers tell it from a refusal by a handler (proto/ERRORS.md).
absl::Status CheckRole(absl::string_view method, Role role);

// The caller of a running call.
// UNAUTHENTICATED: the certificate's name is not "atoll:ROLE:ID", its URIs are
// not as base/identity/identity.h has them, or an enrolled key is unreadable.
absl::StatusOr<Caller> GetCaller(const grpc::ServerContextBase& context);

// The SHA-256 of the DER bytes of a running call's certificate, 64 hex digits;
// empty in plaintext. Parses the certificate.
std::string GetCertificateSha256(const grpc::ServerContextBase& context);

// The name under which a running call counts against limits that callers share.
// Under TLS it is from the certificate, "island:anna"; in plaintext it is the
// caller's host, "ipv4:127.0.0.1". All processes of an island share one name.
std::string GetCallerName(const grpc::ServerContextBase& context);

// OK if `caller` may act for the island (or server) `id`. An operator may act
// for any, an island or a server only for itself.
// PERMISSION_DENIED: it may not. ErrorInfo NOT_YOURS with role and id.
absl::Status CheckActsFor(const Caller& caller, Role role,
                          absl::string_view id);

}  // namespace atl::rpc
