// Deletes runs. A deleted run's shard at once takes no further calls. Its files
// are deleted when no stream and no action uses the shard any longer. Until the
// run's directory has lost its name, reports name the run.

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/failpoint/failpoint.h"
#include "base/obs/log.h"
#include "server/core/faults.h"
#include "server/directory/deleted_runs.h"
#include "server/parameter_server.h"

namespace atl::server {

void ParameterServer::BeginDeletions(const v1::ServerPlan& plan) {
  for (const v1::DeletedRun& deleted : plan.deleted_runs()) {
    const std::string& run_id = deleted.run_id();
    const std::shared_ptr<Shard> shard = FindShard(run_id);
    const std::string shard_uid = shard != nullptr ? shard->run_uid() : "";
    {
      MutexLock lock(&mutex_);
      const auto it = entries_.find(run_id);
      if (it == entries_.end() || it->second.is_deleted) continue;
      Entry& entry = it->second;
      const std::string& held = shard != nullptr ? shard_uid : entry.run_uid;
      // A run whose run_uid is not known is older than all that have one.
      if (IsKnownRun(held) && held != deleted.run_uid()) continue;
      entry.is_deleted = true;
      entry.run_uid = deleted.run_uid();
      entry.fault.reset();
      entry.plan_fault.reset();
      deletions_.push_back({run_id, std::move(entry.shard), ""});
      entry.shard = nullptr;
    }
    LOG(INFO) << "run " << run_id << " with run_uid " << deleted.run_uid()
              << " is deleted";
    if (shard != nullptr) shard->Close(ShardNotHere(run_id));
  }
}

void ParameterServer::FinishDeletions() {
  std::erase_if(deletions_, [this](Deletion& deletion) {
    return FinishDeletion(deletion);
  });
}

bool ParameterServer::FinishDeletion(Deletion& deletion) {
  {
    MutexLock lock(&mutex_);
    if (entries_.at(deletion.run_id).is_restoring) return false;
  }
  if (deletion.shard != nullptr) {
    // The order matters: a live merge may still give the shard an action. Once
    // this deletion alone holds the shard, no other thread can get hold of it.
    if (!deletion.shard->EndUses() || deletion.shard.use_count() > 1) {
      return false;
    }
    deletion.shard.reset();
  }
  std::string directory;
  std::unique_ptr<LogRecordStore> records;
  {
    MutexLock lock(&mutex_);
    Entry& entry = entries_.at(deletion.run_id);
    directory = entry.directory;
    records = std::move(entry.records);
  }
  records.reset();
  failpoint::Hit("server.delete.before");
  absl::Status status = directory_->PersistLog();
  if (status.ok()) status = MarkDeleted(environment_.fs, directory);
  if (!status.ok()) {
    if (status.message() != deletion.logged) {
      deletion.logged = std::string(status.message());
      LOG(WARNING) << "run " << deletion.run_id
                   << " cannot be deleted yet: " << deletion.logged;
    }
    return false;
  }
  failpoint::Hit("server.delete.after");
  low_queue_.Post([this] {
    RemoveDeletedRuns(environment_.fs, options_.data_dir);
  });
  MutexLock lock(&mutex_);
  entries_.erase(deletion.run_id);
  ++change_count_;
  changed_.SignalAll();
  return true;
}

}  // namespace atl::server
