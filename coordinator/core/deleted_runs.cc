#include "coordinator/core/deleted_runs.h"

#include <algorithm>

namespace atl::coordinator {

void DeletedRuns::Add(const storage::v1::RunDeleted& deleted) {
  if (deleted.server_ids().empty() || numbers_.contains(deleted.run_uid())) {
    return;
  }
  const int64_t number = next_number_++;
  runs_[number] = deleted;
  numbers_[deleted.run_uid()] = number;
  for (const std::string& server_id : deleted.server_ids()) {
    waiting_count_ += servers_[server_id].waiting.emplace(number, 0).second;
  }
  changed_ = true;
}

void DeletedRuns::Forget(const storage::v1::RunForgotten& forgotten) {
  const auto number = numbers_.find(forgotten.run_uid());
  const auto server = servers_.find(forgotten.server_id());
  if (number == numbers_.end() || server == servers_.end() ||
      server->second.waiting.erase(number->second) == 0) {
    return;
  }
  --waiting_count_;
  changed_ = true;
  if (server->second.waiting.empty()) servers_.erase(server);
  auto& ids = *runs_.at(number->second).mutable_server_ids();
  ids.erase(std::remove(ids.begin(), ids.end(), forgotten.server_id()),
            ids.end());
  if (!ids.empty()) return;
  runs_.erase(number->second);
  numbers_.erase(number);
}

std::vector<storage::v1::RunDeleted> DeletedRuns::ToSnapshot() const {
  std::vector<storage::v1::RunDeleted> all;
  all.reserve(runs_.size());
  for (const auto& [number, deleted] : runs_) all.push_back(deleted);
  return all;
}

const storage::v1::RunDeleted* DeletedRuns::Find(
    const std::string& run_id, const std::string& run_uid) const {
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run) {
    if (run->second.run_id() == run_id &&
        (run_uid.empty() || run->second.run_uid() == run_uid)) {
      return &run->second;
    }
  }
  return nullptr;
}

bool DeletedRuns::IsWaiting(const std::string& server_id,
                            const std::string& run_uid) const {
  const auto number = numbers_.find(run_uid);
  const auto server = servers_.find(server_id);
  return number != numbers_.end() && server != servers_.end() &&
         server->second.waiting.contains(number->second);
}

bool DeletedRuns::IsIdWaiting(const std::string& server_id,
                              const std::string& run_id) const {
  const auto server = servers_.find(server_id);
  return server != servers_.end() &&
         std::any_of(server->second.waiting.begin(),
                     server->second.waiting.end(), [&](const auto& waiting) {
                       return runs_.at(waiting.first).run_id() == run_id;
                     });
}

std::vector<std::string> DeletedRuns::ServerIds() const {
  std::vector<std::string> ids;
  for (const auto& [server_id, server] : servers_) ids.push_back(server_id);
  return ids;
}

void DeletedRuns::AddToPlan(const std::string& server_id,
                            v1::ServerPlan& plan) const {
  const auto server = servers_.find(server_id);
  if (server == servers_.end()) return;
  size_t named_count = 0;
  for (const auto& [number, revision] : server->second.waiting) {
    if (named_count++ == kNamedMax) break;
    const storage::v1::RunDeleted& deleted = runs_.at(number);
    v1::DeletedRun& named = *plan.add_deleted_runs();
    named.set_run_id(deleted.run_id());
    named.set_run_uid(deleted.run_uid());
  }
}

void DeletedRuns::NotePlans(int64_t revision) {
  if (!changed_) return;
  changed_ = false;
  for (auto& [server_id, server] : servers_) {
    size_t named_count = 0;
    for (auto& [number, named_revision] : server.waiting) {
      if (named_count++ == kNamedMax) break;
      if (named_revision == 0) named_revision = revision;
    }
  }
}

std::vector<std::string> DeletedRuns::TakeReport(
    const v1::ReportShardsRequest& request) {
  std::vector<std::string> let_go;
  const auto found = servers_.find(request.server_id());
  if (found == servers_.end()) return let_go;
  Server& server = found->second;
  if (request.part() == 0) {
    server.part_count = 0;
    server.report_seq = request.report_seq();
    server.named_uids.clear();
  } else if (request.report_seq() != server.report_seq ||
             request.part() != server.part_count) {
    // A request is missing: only the next report tells.
    server.part_count = -1;
    server.named_uids.clear();
  }
  if (server.part_count < 0) return let_go;
  ++server.part_count;
  const auto take = [&](const v1::ShardReport& shard) {
    if (IsWaiting(request.server_id(), shard.run_uid())) {
      server.named_uids.insert(shard.run_uid());
    }
    if (!shard.run_uid().empty()) return;
    // Files of before there were uids: of any of the runs.
    for (const auto& [number, revision] : server.waiting) {
      const storage::v1::RunDeleted& deleted = runs_.at(number);
      if (deleted.run_id() == shard.run_id()) {
        server.named_uids.insert(deleted.run_uid());
      }
    }
  };
  for (const v1::ShardReport& shard : request.shards()) take(shard);
  for (const v1::ShardReport& shard : request.changes()) take(shard);
  if (request.parts_left() > 0) return let_go;
  for (const auto& [number, revision] : server.waiting) {
    if (revision == 0 || request.plan_revision() < revision) continue;
    const std::string& run_uid = runs_.at(number).run_uid();
    if (!server.named_uids.contains(run_uid)) let_go.push_back(run_uid);
  }
  server.part_count = -1;
  server.named_uids.clear();
  return let_go;
}

void DeletedRuns::Restart(const std::string& server_id) {
  const auto server = servers_.find(server_id);
  if (server == servers_.end()) return;
  server->second.part_count = -1;
  server->second.named_uids.clear();
}

}  // namespace atl::coordinator
