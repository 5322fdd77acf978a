#include "coordinator/store/testing/memory_store.h"

#include <algorithm>
#include <utility>

#include "base/status/status_macros.h"
#include "coordinator/store/batch_check.h"

namespace atl::coordinator {

absl::Status MemoryLogStore::Append(const Batch& batch) {
  MutexLock lock(&mutex_);
  if (!damage_.ok()) return damage_;
  if (!failure_.ok()) return failure_;
  if (batch.empty()) return absl::OkStatus();
  const auto& logs = logs_;
  const auto newest = [&logs](const std::string& run_id) -> int64_t {
    const auto log = logs.find(run_id);
    if (log == logs.end() || log->second.records.empty()) return 0;
    return log->second.records.rbegin()->first;
  };
  RETURN_IF_ERROR(RevisionsAfter(batch, newest).status());
  for (const std::string& run_id : batch.deleted_runs) logs_.erase(run_id);
  for (const LogEntry& entry : batch.entries) {
    logs_[entry.run_id].records[entry.record.revision()] = entry.record;
  }
  for (const HistoryRow& row : batch.history) {
    logs_[row.run_id].history[{row.table, row.number}] = row;
  }
  for (const LogSnapshot& taken : batch.snapshots) {
    Log& log = logs_[taken.run_id];
    log.snapshot = taken.snapshot;
    log.records.erase(
        log.records.begin(),
        log.records.upper_bound(taken.snapshot.compacted_revision()));
  }
  for (const HistoryTrim& trim : batch.trims) {
    const auto log = logs_.find(trim.run_id);
    if (log == logs_.end()) continue;
    auto& history = log->second.history;
    history.erase(
        history.lower_bound({trim.table, 0}),
        history.lower_bound({trim.table, std::max<int64_t>(trim.end, 0)}));
  }
  ++index_;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<storage::v1::Snapshot>>
MemoryLogStore::ReadSnapshot(const std::string& run_id) const {
  MutexLock lock(&mutex_);
  const auto log = logs_.find(run_id);
  if (log == logs_.end()) return std::nullopt;
  return log->second.snapshot;
}

absl::StatusOr<std::vector<storage::v1::Record>> MemoryLogStore::Scan(
    const std::string& run_id, int64_t after_revision,
    int64_t count_max) const {
  MutexLock lock(&mutex_);
  std::vector<storage::v1::Record> records;
  const auto log = logs_.find(run_id);
  if (log == logs_.end()) return records;
  const auto& snapshot = log->second.snapshot;
  if (after_revision > 0 && snapshot.has_value() &&
      after_revision < snapshot->compacted_revision()) {
    return Compacted(run_id, snapshot->compacted_revision());
  }
  for (auto record = log->second.records.upper_bound(after_revision);
       record != log->second.records.end() &&
       static_cast<int64_t>(records.size()) < count_max;
       ++record) {
    const auto readable = readable_.find(run_id);
    if (readable != readable_.end() && record->first > readable->second) {
      return absl::DataLossError("a record cannot be read back");
    }
    records.push_back(record->second);
  }
  return records;
}

absl::StatusOr<std::vector<HistoryRow>> MemoryLogStore::ReadHistory(
    const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
    int64_t bytes_max) const {
  MutexLock lock(&mutex_);
  std::vector<HistoryRow> rows;
  const auto log = logs_.find(run_id);
  if (log == logs_.end()) return rows;
  int64_t byte_count = 0;
  const auto last = log->second.history.lower_bound({table, end});
  for (auto row = log->second.history.lower_bound({table, begin});
       row != last && byte_count < bytes_max; ++row) {
    byte_count += static_cast<int64_t>(row->second.value.size());
    rows.push_back(row->second);
  }
  return rows;
}

absl::StatusOr<std::vector<std::string>> MemoryLogStore::ListLogs() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, log] : logs_) ids.push_back(id);
  return ids;
}

void MemoryLogStore::DamageRecordsAfter(const std::string& run_id,
                                        int64_t revision) {
  MutexLock lock(&mutex_);
  readable_[run_id] = revision;
}

void MemoryLogStore::FailAppends(absl::Status status) {
  MutexLock lock(&mutex_);
  failure_ = std::move(status);
}

int64_t MemoryLogStore::index() const {
  MutexLock lock(&mutex_);
  return index_;
}

absl::Status MemoryLogStore::damage() const {
  MutexLock lock(&mutex_);
  return damage_;
}

void MemoryLogStore::SetDamage(absl::Status status) {
  MutexLock lock(&mutex_);
  damage_ = std::move(status);
}

}  // namespace atl::coordinator
