// Who may call what: one table, default deny.
//
// A caller's role:
//   * plaintext (loopback, or --insecure): operator;
//   * mutual TLS: from the common name of its certificate, "atoll:ROLE:ID",
//     with ROLE operator, island, server or reader and an ID of
//     [a-z0-9-]{1,63} (X.509 bounds the whole name to 64 bytes).
//
// Under TLS the check runs for every call, before its handler, in gRPC's
// authentication step (MakeRoleChecker, set by base/rpc/listener.h), so that a
// handler cannot forget it. What a role may do to *whose* objects is a
// handler's matter: CheckActsFor.
//
// Pure but for MakeRoleChecker, GetCaller and GetCallerName. Thread-safe.

#ifndef BASE_RPC_AUTHORIZATION_H_
#define BASE_RPC_AUTHORIZATION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"

namespace atl::rpc {

enum class Role { kOperator = 0, kIsland = 1, kServer = 2, kReader = 3 };
inline constexpr int kRoleCount = 4;

// "operator", "island", "server", "reader".
absl::string_view RoleName(Role role);

// Who calls.
struct Caller {
  Role role = Role::kOperator;
  std::string id;  // Empty in plaintext: whoever they say.
};

// The caller that a certificate's common name stands for.
//
// UNAUTHENTICATED: it is not "atoll:ROLE:ID".
absl::StatusOr<Caller> ParseCommonName(absl::string_view common_name);

// OK if `role` may call `method` ("/atoll.v1.RunService/GetRun").
//
// PERMISSION_DENIED: it may not, or the method is not in the table. Without
// details: gRPC's authentication step sends code and message alone.
absl::Status CheckRole(absl::string_view method, Role role);

// True if the table has a row for `method`.
bool IsKnownMethod(absl::string_view method);

// The caller of a running call.
//
// UNAUTHENTICATED: a certificate whose name is not ours.
absl::StatusOr<Caller> GetCaller(const grpc::ServerContextBase& context);

// Who a running call counts for where callers share what is bounded:
// "island:anna", as its certificate says; in plaintext the host that it comes
// from, "ipv4:127.0.0.1". No two processes of an island count apart.
std::string GetCallerName(const grpc::ServerContextBase& context);

// OK if `caller` may act for the island (or server) `id`: an operator for any,
// an island or a server for itself alone.
//
// PERMISSION_DENIED: it may not. ErrorInfo NOT_YOURS with role and id.
absl::Status CheckActsFor(const Caller& caller, Role role,
                          absl::string_view id);

// The step that a TLS listener runs before every call.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeRoleChecker();

}  // namespace atl::rpc

#endif  // BASE_RPC_AUTHORIZATION_H_
