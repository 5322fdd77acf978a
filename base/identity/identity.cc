#include "base/identity/identity.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/codec/sha256.h"
#include "base/layout/ids.h"
#include "base/status/refusal.h"

namespace atl {
namespace {

constexpr absl::string_view kScheme = "atoll://";
constexpr size_t kEnrolledDigestBytes = 16;

// An id of base/random_id, or one that stands for it.
bool IsUid(absl::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-';
         });
}

absl::Status Malformed(absl::string_view uri) {
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate's URI \"", absl::CHexEscape(uri.substr(0, 200)),
      "\" is not one of ours, or is for another role or name"));
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kOperator:
      return "operator";
    case Role::kIsland:
      return "island";
    case Role::kServer:
      return "server";
    case Role::kReader:
      return "reader";
    case Role::kCoordinator:
      return "coordinator";
    case Role::kGate:
      return "gate";
    case Role::kData:
      return "data";
  }
  return "unknown";
}

bool IsEnrolledName(absl::string_view name) {
  return absl::StartsWith(name, kEnrolledPrefix);
}

std::string ToEnrolledName(absl::string_view name) {
  return absl::StrCat(IsEnrolledName(name) ? "" : kEnrolledPrefix, name);
}

std::string EnrolledDigest(Role role, absl::string_view name,
                           absl::string_view key_sha256) {
  const codec::Sha256Digest digest = codec::ComputeSha256(
      absl::StrCat(RoleName(role), "/", name, "/", key_sha256));
  return std::string(digest.begin(), digest.begin() + kEnrolledDigestBytes);
}

std::string MakeEnrolledUri(absl::string_view cluster_id,
                            absl::string_view run_uid, Role role,
                            absl::string_view name) {
  return absl::StrCat(kScheme, cluster_id, "/run/", run_uid, "/",
                      RoleName(role), "/", name);
}

std::string MakeRunUri(absl::string_view run_id, Role role,
                       absl::string_view name) {
  return MakeEnrolledUri("", run_id, role, name);
}

std::string MakeAnyRunUri(Role role, absl::string_view name) {
  return absl::StrCat(kScheme, "/any/", RoleName(role), "/", name);
}

absl::StatusOr<RunScope> ParseRunScope(const std::vector<std::string>& uris,
                                       Role role, absl::string_view name) {
  RunScope scope;
  int kind_count = 0;
  for (const std::string& uri : uris) {
    absl::string_view rest = uri;
    if (!absl::ConsumePrefix(&rest, kScheme)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
    if (parts.size() < 4 || parts[parts.size() - 2] != RoleName(role) ||
        parts.back() != name) {
      return Malformed(uri);
    }
    if (parts.size() == 4 && parts[0].empty() && parts[1] == "any") {
      kind_count += scope.any ? 0 : 1;
      scope.any = true;
    } else if (parts.size() == 5 && parts[1] == "run" && parts[0].empty() &&
               ValidateId("run", parts[2]).ok()) {
      kind_count += scope.run_ids.empty() ? 1 : 0;
      scope.run_ids.emplace_back(parts[2]);
    } else if (parts.size() == 5 && parts[1] == "run" && IsUid(parts[0]) &&
               IsUid(parts[2])) {
      ++kind_count;
      scope.cluster_id = std::string(parts[0]);
      scope.run_uid = std::string(parts[2]);
    } else {
      return Malformed(uri);
    }
  }
  if (kind_count > 1) {
    return absl::UnauthenticatedError(
        "the certificate's URIs name runs in more than one way");
  }
  if (kind_count == 0) scope.any = true;
  return scope;
}

absl::Status CheckRunScope(const RunScope& scope, absl::string_view run_id,
                           absl::string_view run_uid,
                           absl::string_view cluster_id) {
  const bool fits =
      scope.any ||
      (scope.enrolled()
           ? scope.run_uid == run_uid && scope.cluster_id == cluster_id
           : std::find(scope.run_ids.begin(), scope.run_ids.end(), run_id) !=
                 scope.run_ids.end());
  if (fits) return absl::OkStatus();
  return Refuse(absl::StatusCode::kPermissionDenied, "NOT_YOUR_RUN",
                absl::StrCat("the certificate is not for run ", run_id, ": ",
                             scope.enrolled()
                                 ? std::string("it was issued for another one")
                                 : absl::StrCat("it was issued for ",
                                                absl::StrJoin(scope.run_ids,
                                                              ", "))));
}

}  // namespace atl
