// Restores runs: a shard goes back to an earlier cut of its run. Its streams end
// at once. When no stream and no action uses it any longer, its directory is
// rolled back, and the shard is opened again as after a start. Reports have the
// earlier run_epoch until then.

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/object_store/object_store.h"
#include "base/object_store/retrier.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/core/faults.h"
#include "server/parameter_server.h"
#include "server/store/records/run_records.h"

namespace atl::server {
namespace {

// A later attempt may succeed without a restart.
bool MayPass(const v1::Fault& fault) {
  return fault.code() == "RESOURCE_EXHAUSTED" || fault.code() == "UNAVAILABLE";
}

}  // namespace

bool ParameterServer::BeginRestore(const v1::ServerRunPlan& plan) {
  const std::shared_ptr<Shard> shard = FindShard(plan.run_id());
  if (shard != nullptr && !shard->NeedsRestore(plan)) return false;
  {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(plan.run_id());
    if (it == entries_.end() || it->second.is_deleted) return false;
    Entry& entry = it->second;
    if (entry.is_restoring) return true;
    // A shard that could not be opened may have what the cut needs.
    if (shard == nullptr &&
        (!plan.has_restored() || plan.run_epoch() <= entry.run_epoch ||
         entry.records == nullptr ||
         FindOtherRun(entry.run_uid, plan.run_uid()).has_value())) {
      return false;
    }
    entry.is_restoring = true;
    restores_.push_back({plan, std::move(entry.shard)});
    entry.shard = nullptr;
  }
  if (shard != nullptr) {
    LOG(INFO) << "run " << plan.run_id() << " goes back to "
              << plan.restored().pin_id() << ", with run_epoch "
              << plan.run_epoch();
    shard->Close(Refuse(
        absl::StatusCode::kAborted, "STALE_RUN_EPOCH",
        absl::StrCat("the run was restored to ", plan.restored().pin_id(),
                     ", and its run_epoch is now ", plan.run_epoch(),
                     "; fetch the plan")));
  }
  return true;
}

void ParameterServer::ContinueRestores() {
  std::erase_if(restores_, [this](Restore& restore) {
    if (restore.shard != nullptr) {
      // The order matters, as in FinishDeletion.
      if (!restore.shard->EndUses() || restore.shard.use_count() > 1) {
        return false;
      }
      restore.shard.reset();
    }
    low_queue_.Post(
        [this, plan = std::move(restore.plan)] { RunRestore(plan); });
    return true;
  });
}

absl::Status ParameterServer::RollBack(const v1::ServerRunPlan& plan,
                                       RecordStore& records,
                                       const records::RunRecord& record) {
  const auto roll_back = [&] {
    return Shard::Rollback(environment_.fs, records, options_.data_dir, record,
                           plan, directory_->log_seen());
  };
  const absl::Status status = roll_back();
  if (!absl::IsDataLoss(status) || plan.restored().mirror_run_epoch() == 0 ||
      !records.damage().ok()) {
    return status;
  }
  if (!options_.mirror.has_value()) {
    return absl::DataLossError(absl::StrCat(
        status.message(),
        "; the mirror has it, and this server has no mirror: start it with the "
        "coordinator's --mirror"));
  }
  const auto is_stopping = [this] {
    MutexLock lock(&mutex_);
    return stopping_;
  };
  LOG(INFO) << "run " << plan.run_id() << " gets what it lacks of "
            << plan.restored().pin_id() << " from the mirror";
  atl::Waiting waiting = options_.mirror->waiting;
  waiting.cancelled = is_stopping;
  absl::StatusOr<std::unique_ptr<ObjectStore>> mirror =
      options_.mirror->open(waiting);
  if (!mirror.ok()) return absl::UnavailableError(mirror.status().message());
  RETURN_IF_ERROR(Shard::Download(**mirror, environment_.fs, records,
                                  options_.data_dir, record, plan,
                                  is_stopping));
  return roll_back();
}

void ParameterServer::RunRestore(const v1::ServerRunPlan& plan) {
  const std::string& run_id = plan.run_id();
  FoundShard found;
  found.run_id = run_id;
  {
    MutexLock lock(&mutex_);
    Entry& entry = entries_.at(run_id);
    if (entry.is_deleted) {
      entry.is_restoring = false;
      return;
    }
    found.run_uid = entry.run_uid;
    found.shard = entry.shard_number;
    found.records = std::move(entry.records);
  }
  absl::StatusOr<records::RunRecord> record = ReadRun(*found.records);
  // First, because an older copy of the coordinator does not know the restore.
  absl::Status status = directory_->PersistLog();
  status.Update(record.status());
  if (status.ok()) status = RollBack(plan, *found.records, *record);
  Entry made;
  if (status.ok() || (absl::IsDataLoss(status) && record.ok())) {
    found.record = *std::move(record);
    made = MakeEntry(std::move(found), status,
                     status.ok() ? 0 : plan.run_epoch());
  } else {
    made.records = std::move(found.records);
    made.fault = ToFault(status);
  }
  MutexLock lock(&mutex_);
  Entry& entry = entries_.at(run_id);
  if (made.fault.has_value() &&
      (!entry.fault.has_value() || ToText(*entry.fault) != ToText(*made.fault))) {
    LOG(ERROR) << "run " << run_id
               << " cannot be restored here: " << ToText(*made.fault);
  }
  // The rest of the entry stays.
  entry.records = std::move(made.records);
  if (entry.is_deleted) {
    made.shard.reset();  // It uses the records.
  } else {
    entry.shard = std::move(made.shard);
  }
  entry.fault = std::move(made.fault);
  // While it may pass, the next plan tries again.
  if (!entry.fault.has_value() || !MayPass(*entry.fault)) {
    entry.run_epoch = plan.run_epoch();
  }
  entry.is_restoring = false;
  ++change_count_;
  changed_.SignalAll();
}

}  // namespace atl::server
