// The directory of one certificate: what its owner's program needs.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/identity/identity.h"
#include "cli/ca/authority_directory.h"

namespace atl::cli {

// The value of `runs` that stands for every run.
inline constexpr char kAnyRun[] = "any";

struct IssueOptions {
  Role role = Role::kOperator;
  std::string id;
  std::vector<std::string> hosts;
  // Ids of the runs that an island or a reader may touch, or kAnyRun alone.
  // Empty: kAnyRun.
  std::vector<std::string> runs;
  std::string out;
  absl::Duration lifetime;
};

// The content of a directory.
struct IssuedFiles {
  std::string directory;
  std::string common_name;
  absl::Time end;                  // From then on it is invalid.
  std::vector<std::string> files;  // Names of the written files.
};

// Issues a certificate for "atoll:ROLE:ID" with the role's key usages: a
// coordinator serves, a server and a gate serve and call, the others call. No
// key is ever overwritten, except by itself.
// INVALID_ARGUMENT: the id, a host or a run is malformed; an island's or
// reader's id begins as enrolled names do; hosts are missing for a listener, or
// hosts or runs are given for another role. ALREADY_EXISTS: `out` holds a key, or
// the certificate of another CA. FAILED_PRECONDITION: `ca` has no island CA,
// which a gate needs. Otherwise as the file system.
absl::StatusOr<IssuedFiles> IssueFiles(const Ca& ca,
                                       const IssueOptions& options,
                                       absl::Time now);

// Replaces tls.crt in each directory, and crl.pem if the CA has one: key, name,
// hosts and runs stay. It may have expired, and tls.key may be elsewhere.
// Replaces none if one has an error. INVALID_ARGUMENT: `ca` did not sign one of
// them. NOT_FOUND: one is missing. Otherwise as the file system.
absl::StatusOr<std::vector<IssuedFiles>> RenewFiles(
    const Ca& ca, const std::vector<std::string>& directories, absl::Time now,
    absl::Duration lifetime);

}  // namespace atl::cli
