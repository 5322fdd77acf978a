#include "server/service/run_access.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/identity/identity.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::server {

void RunAccess::TakePlan(const v1::ServerPlan& plan) {
  std::map<std::string, std::set<std::string>> revoked;
  std::map<std::string, std::set<std::string>> enrolled;
  for (const v1::ServerRunPlan& run : plan.runs()) {
    if (run.lists_enrolled()) {
      enrolled[run.run_uid()] = {run.enrolled().begin(), run.enrolled().end()};
    }
    if (run.revoked_island_ids().empty()) continue;
    revoked[run.run_uid()] = {run.revoked_island_ids().begin(),
                              run.revoked_island_ids().end()};
  }
  MutexLock lock(&mutex_);
  revoked_ = std::move(revoked);
  enrolled_ = std::move(enrolled);
  cluster_id_ = plan.log().cluster_id();
  lease_.TakePlan(plan.revision());
}

void RunAccess::NoteAnswer(int64_t revision, absl::Duration lease) {
  MutexLock lock(&mutex_);
  lease_.NoteAnswer(revision, clock_.Now() + lease);
}

bool RunAccess::TakeOverdue() {
  MutexLock lock(&mutex_);
  return lease_.TakeOverdue(clock_.Now());
}

std::function<absl::Status()> RunAccess::MakeCheck(
    const rpc::Caller& caller, const std::string& run_id,
    const std::string& run_uid) const {
  return [this, caller, run_id, run_uid] {
    MutexLock lock(&mutex_);
    return CheckThat(lease_.AllowsBegun(clock_.Now(), kAwayMax), caller, run_id,
                     run_uid);
  };
}

absl::Status RunAccess::Check(const rpc::Caller& caller,
                              const std::string& run_id,
                              const std::string& run_uid) const {
  MutexLock lock(&mutex_);
  return CheckThat(clock_.Now() < lease_.end(), caller, run_id, run_uid);
}

absl::Status RunAccess::CheckThat(bool plan_counts, const rpc::Caller& caller,
                                  const std::string& run_id,
                                  const std::string& run_uid) const {
  if (caller.role != Role::kIsland && caller.role != Role::kReader) {
    return absl::OkStatus();
  }
  // First: before the first plan the cluster's id is not known either.
  if (caller.scope.enrolled() && !plan_counts) {
    return Refuse(absl::StatusCode::kUnavailable, "PLAN_TOO_OLD",
                  "the server has been without its coordinator's newest plan "
                  "for too long to know that this certificate still counts: "
                  "call again");
  }
  RETURN_IF_ERROR(CheckRunScope(caller.scope, run_id, run_uid, cluster_id_));
  const auto revoked = revoked_.find(run_uid);
  if (revoked != revoked_.end() && revoked->second.contains(caller.id)) {
    return Refuse(absl::StatusCode::kPermissionDenied, "REVOKED",
                  absl::StrCat("an operator has revoked ", caller.id,
                               " in run ", run_id));
  }
  if (!caller.scope.enrolled()) return absl::OkStatus();
  const auto enrolled = enrolled_.find(run_uid);
  if (enrolled == enrolled_.end() ||
      enrolled->second.contains(EnrolledDigest(caller.role, caller.id,
                                               caller.scope.key_sha256))) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kUnavailable, "NOT_ENROLLED",
                absl::StrCat("the server does not know this certificate of ",
                             caller.id, " yet, or it no longer counts: call "
                             "again, or ask the coordinator"));
}

}  // namespace atl::server
