// The directories of `atoll ca`: a CA's, and those of the certificates that it
// issues. File names are those of cert-manager's Secrets:
//
//   a CA           ca.crt, ca.key
//   a certificate  tls.crt, tls.key, ca.crt
//
// A key has the mode 0600, a directory that is made here 0700. Each file
// appears whole. No key is ever overwritten.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/authorization.h"

namespace atl::cli {

inline constexpr char kCaCertFile[] = "ca.crt";
inline constexpr char kCaKeyFile[] = "ca.key";
inline constexpr char kTlsCertFile[] = "tls.crt";
inline constexpr char kTlsKeyFile[] = "tls.key";

// How a directory came to hold its CA.
enum class CaOrigin { kMade, kCopied, kKept };

// Leaves the CA that `directory` holds. Else copies the one of `existing`, if
// that directory holds one. Else makes one for `lifetime`.
// FAILED_PRECONDITION: a directory holds half of a CA. UNAUTHENTICATED: the CA
// has expired. INVALID_ARGUMENT: the files are not a CA's certificate and key.
// Otherwise as the file system.
absl::StatusOr<CaOrigin> InitCa(const std::string& directory,
                                const std::string& existing, absl::Time now,
                                absl::Duration lifetime);

struct IssueOptions {
  std::string directory;  // Of the CA.
  rpc::Role role = rpc::Role::kOperator;
  std::string id;
  std::vector<std::string> hosts;
  std::string out;
  absl::Duration lifetime;
};

// Issues a certificate for "atoll:ROLE:ID" with the role's key usages: a
// coordinator serves, a server serves and calls, the others call. Starts five
// minutes back, for clocks that differ. Returns the files' common name.
// INVALID_ARGUMENT: the id or a host is malformed; hosts are missing for a
// listener, or given for another. NOT_FOUND: `directory` holds no CA.
// ALREADY_EXISTS: `out` holds a key, or the certificate of another CA.
// Otherwise as InitCa.
absl::StatusOr<std::string> IssueFiles(const IssueOptions& options,
                                       absl::Time now);

}  // namespace atl::cli
