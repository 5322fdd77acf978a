// The identity in a certificate: its role, its name, the runs it may touch.
//
// The role and the name are in the common name "atoll:ROLE:NAME". The runs are
// URIs among the subject's alternative names:
//   atoll://CLUSTER_ID/run/RUN_UID/ROLE/NAME   one run; the gate's kind
//   atoll:///run/RUN_ID/ROLE/NAME              runs of this id; an operator's
//   atoll:///any/ROLE/NAME                     every run; an operator's
// Only islands and readers have such URIs. Without one, a certificate of an
// operator's own CA may touch every run.
//
// The names of enrolled islands and readers begin with "e-", and `atoll ca
// issue` gives no island or reader such a name. So no stranger gets a name of an
// operator's island, and revoking a name concerns one issuer alone.
//
// Pure. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl {

enum class Role {
  kOperator = 0,
  kIsland = 1,
  kServer = 2,
  kReader = 3,
  kCoordinator = 4,  // It serves, and calls nothing of ours.
  kGate = 5,         // It enrols strangers.
  kData = 6,         // It serves a run's data, and calls nothing of ours.
};
inline constexpr int kRoleCount = 7;

// "operator", "island", "server", "reader", "coordinator", "gate", "data".
absl::string_view RoleName(Role role);

// An enrolled certificate that ended longer ago cannot be renewed, and its name
// is free for another key.
inline constexpr absl::Duration kRenewableAfterEnd = absl::Hours(24 * 30);

// The names of enrolled islands and readers begin with this.
inline constexpr absl::string_view kEnrolledPrefix = "e-";
bool IsEnrolledName(absl::string_view name);
// `name` with the prefix, which it may have already.
std::string ToEnrolledName(absl::string_view name);

// Stands for an enrolled certificate's owner in plans: the first 16 bytes of the
// SHA-256 of "ROLE/NAME/" and the SHA-256 of its key. Only islands and readers
// are enrolled.
std::string EnrolledDigest(Role role, absl::string_view name,
                           absl::string_view key_sha256);

// The runs that a certificate's owner may touch.
struct RunScope {
  bool any = false;                  // Every run; the rest is empty.
  std::vector<std::string> run_ids;  // Runs with these ids.
  // The one run with this uid, in this cluster: an enrolled certificate.
  std::string cluster_id;
  std::string run_uid;
  // SHA-256 of an enrolled certificate's key, 32 bytes. The URIs do not have it:
  // base/rpc/authorization sets it.
  std::string key_sha256;

  bool enrolled() const { return !run_uid.empty(); }
  bool operator==(const RunScope&) const = default;
};

// Requires: ids, as base/layout/ids.h or base/random_id make them.
std::string MakeEnrolledUri(absl::string_view cluster_id,
                            absl::string_view run_uid, Role role,
                            absl::string_view name);
std::string MakeRunUri(absl::string_view run_id, Role role,
                       absl::string_view name);
std::string MakeAnyRunUri(Role role, absl::string_view name);

// The scope that the URIs of a certificate of `role` and `name` stand for. URIs
// of other schemes do not count.
// UNAUTHENTICATED: a URI is malformed, or is for another role or name; or URIs
// of two kinds, or of two enrolled runs.
absl::StatusOr<RunScope> ParseRunScope(const std::vector<std::string>& uris,
                                       Role role, absl::string_view name);

// OK if a certificate with `scope` may touch the run.
// PERMISSION_DENIED, NOT_YOUR_RUN: it is for other runs.
absl::Status CheckRunScope(const RunScope& scope, absl::string_view run_id,
                           absl::string_view run_uid,
                           absl::string_view cluster_id);

}  // namespace atl
