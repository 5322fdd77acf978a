// A server's readiness and health, and its drain and stop.

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint/test_point.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "server/parameter_server.h"

namespace atl::server {
namespace {

absl::Status Stopping() {
  return Refuse(absl::StatusCode::kUnavailable, "STOPPING",
                "the server is stopping: call again, it may come back");
}

}  // namespace

void ParameterServer::ShowReady(const absl::Status& ready) {
  environment_.metrics.SetReady(ready);
  if (rpc_ != nullptr) rpc_->SetServing(ready.ok());
}

void ParameterServer::ShowHealth() {
  std::map<std::string, std::shared_ptr<const Shard>> shards;
  {
    MutexLock lock(&mutex_);
    if (draining_ || stopping_) return;
    for (const auto& [run_id, entry] : entries_) {
      if (!entry.is_deleted) shards[run_id] = entry.shard;
    }
  }
  std::map<std::string, bool> serves = {{kShardsHealth, true}};
  ServerMetrics::ShardCounts counts = {};
  for (const auto& [run_id, shard] : shards) {
    const bool does = shard != nullptr && !shard->has_stopped();
    const ShardState state = !does                 ? ShardState::kStopped
                             : shard->is_blocked() ? ShardState::kBlocked
                                                   : ShardState::kServing;
    ++counts[static_cast<size_t>(state)];
    serves[absl::StrCat(kShardsHealth, "/", run_id)] = does;
    serves[kShardsHealth] &= does;
  }
  metrics_.SetShards(counts);
  for (const auto& [name, serving] : serves) {
    const auto shown = shown_health_.find(name);
    if (shown != shown_health_.end() && shown->second == serving) continue;
    rpc_->SetServing(name, serving);
  }
  for (const auto& [name, serving] : shown_health_) {
    // The run is deleted: nothing is wrong with it.
    if (serves.count(name) == 0) rpc_->SetServing(name, true);
  }
  shown_health_ = std::move(serves);
}

absl::Status ParameterServer::Drain(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  ShowReady(Stopping());
  push_watchdog_.Close(Stopping());
  pull_watchdog_.Close(Stopping());
  TestPoint("a drain waits for pushes");
  if (!push_watchdog_.WaitUntilEmpty(deadline) ||
      !pull_watchdog_.WaitUntilEmpty(deadline)) {
    LOG(WARNING) << "some streams have not ended in time and are cut";
  }
  // From here on the server acknowledges no contribution.
  finish_queue_.Stop();
  absl::Status flushed = FlushShards();
  Stop();
  // Again, for what merges and commits wrote meanwhile.
  flushed.Update(FlushShards());
  return flushed;
}

absl::Status ParameterServer::FlushShards() {
  Shards shards;
  {
    MutexLock lock(&mutex_);
    for (const auto& [run_id, entry] : entries_) {
      if (entry.shard != nullptr) shards.push_back(entry.shard);
    }
  }
  absl::Status flushed;
  for (const auto& shard : shards) {
    const absl::Status status =
        Annotate(shard->store().Flush(),
                 absl::StrCat("run ", shard->store().run().run_id(),
                              ": what was acknowledged is not durable yet"));
    if (!status.ok()) LOG(ERROR) << status.ToString();
    flushed.Update(status);
  }
  return flushed;
}

void ParameterServer::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  ShowReady(Stopping());
  if (rpc_ != nullptr) rpc_->Stop();
  plan_thread_.request_stop();
  report_thread_.request_stop();
  if (plan_thread_.joinable()) plan_thread_.join();
  if (report_thread_.joinable()) report_thread_.join();
  finish_queue_.Stop();
  merge_queue_.Stop();
  disk_queue_.Stop();
  low_queue_.Stop();
  budget_queue_.Stop();
}

}  // namespace atl::server
