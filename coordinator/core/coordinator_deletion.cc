// Deletes runs, and waits until servers have deleted their files.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/features/features.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/coordinator.h"

namespace atl::coordinator {
namespace {

// How many absent servers a refusal names.
constexpr size_t kAwayNamedMax = 5;

v1::DeleteRunResponse ToResponse(const storage::v1::RunDeleted& deleted) {
  v1::DeleteRunResponse response;
  response.set_run_uid(deleted.run_uid());
  for (const std::string& server_id : deleted.server_ids()) {
    response.add_waiting_server_ids(server_id);
  }
  return response;
}

}  // namespace

absl::Status Coordinator::TooManyDeleted() const {
  std::vector<std::string> away;
  for (const std::string& server_id : deleted_.ServerIds()) {
    const ServerInfo* const server = FindServer(server_id);
    if (server == nullptr || !server->alive) away.push_back(server_id);
  }
  std::string text = absl::StrCat(
      "the coordinator remembers ", deleted_.waiting_count(),
      " deletions, the most it can, until servers have deleted their files");
  if (!away.empty()) {
    const size_t more = away.size() - std::min(away.size(), kAwayNamedMax);
    away.resize(away.size() - more);
    absl::StrAppend(&text, "; away are ", absl::StrJoin(away, ", "));
    if (more > 0) absl::StrAppend(&text, " and ", more, " more");
    absl::StrAppend(&text,
                    ": start them, or for a server whose disk is gone a new "
                    "one with its --server-id");
  }
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "TOO_MANY_DELETED",
                      text, absl::Seconds(10));
}

absl::StatusOr<v1::DeleteRunResponse> Coordinator::DeleteRun(
    const std::string& run_id, const std::string& run_uid, absl::Time now) {
  RETURN_IF_ERROR(CheckWritable());
  const auto found = runs_.find(run_id);
  if (found == runs_.end() ||
      (!run_uid.empty() && found->second->state().run_uid() != run_uid)) {
    const storage::v1::RunDeleted* const earlier =
        deleted_.Find(run_id, run_uid);
    if (earlier != nullptr) return ToResponse(*earlier);
    return Refuse(
        absl::StatusCode::kNotFound, "NO_SUCH_RUN",
        absl::StrCat("there is no run \"", run_id.substr(0, 64), "\"",
                     run_uid.empty() ? ""
                                     : absl::StrCat(" with run_uid ",
                                                    run_uid.substr(0, 64))));
  }
  const RunState& state = found->second->state();
  if (!state.ended() && !found->second->fault().has_value()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "RUN_NOT_ENDED",
                  absl::StrCat("run ", run_id, " has not ended: end it with "
                               "`atoll run cancel ",
                               run_id, "`, then delete it"));
  }
  const std::set<std::string> server_ids(state.server_ids().begin(),
                                         state.server_ids().end());
  if (deleted_.waiting_count() + static_cast<int64_t>(server_ids.size()) >
      kDeletedWaitingMax) {
    return TooManyDeleted();
  }
  storage::v1::Record record;
  storage::v1::RunDeleted& deleted = *record.mutable_run_deleted();
  deleted.set_run_id(run_id);
  deleted.set_run_uid(state.run_uid());
  for (const std::string& server_id : server_ids) {
    deleted.add_server_ids(server_id);
  }
  v1::DeleteRunResponse response = ToResponse(deleted);
  reasons_.push_back(absl::StrCat("run ", run_id, " (", state.run_uid(),
                                  ") is deleted by an operator"));
  runs_.erase(found);
  ForgetTimer(run_id);
  NoteAllRuns();  // A server may have the run's files now.
  logs_.erase(run_id);
  series_.erase(run_id);
  sample_times_.erase(run_id);
  EmitOwn(std::move(record), now);
  deleted_run_ids_.push_back(run_id);
  changed_servers_.insert(server_ids.begin(), server_ids.end());
  return response;
}

void Coordinator::ForgetRuns(const v1::ReportShardsRequest& request,
                             absl::Time now) {
  // An older program names no run_uid in its reports, and deletes nothing.
  const uint64_t features = servers_[request.server_id()].info.features;
  if ((PeerFeatures(features) & kRunUid) == 0) return;
  for (std::string& run_uid : deleted_.TakeReport(request)) {
    reasons_.push_back(absl::StrCat("server ", request.server_id(),
                                    " has no files of the deleted run ",
                                    run_uid));
    storage::v1::Record record;
    record.mutable_run_forgotten()->set_run_uid(std::move(run_uid));
    record.mutable_run_forgotten()->set_server_id(request.server_id());
    EmitOwn(std::move(record), now);
    NoteAllRuns();
    changed_servers_.insert(request.server_id());
  }
}

}  // namespace atl::coordinator
