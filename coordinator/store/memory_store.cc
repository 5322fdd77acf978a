#include "coordinator/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {

absl::Status MemoryStore::Append(absl::Span<const LogEntry> entries) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  std::map<std::string, int64_t> newest;
  for (const LogEntry& entry : entries) {
    const auto log = logs_.find(entry.run_id);
    const auto [revision, is_new] = newest.try_emplace(
        entry.run_id, log == logs_.end() ? 0 : log->second.size());
    if (entry.record.revision() != ++revision->second) {
      return absl::InvalidArgumentError(
          absl::StrCat("record ", entry.record.revision(), " of run \"",
                       entry.run_id, "\" does not follow"));
    }
  }
  for (const LogEntry& entry : entries) {
    logs_[entry.run_id].push_back(entry.record);
  }
  ++append_count_;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<storage::v1::Record>> MemoryStore::Scan(
    const std::string& run_id, int64_t after_revision,
    int64_t count_max) const {
  MutexLock lock(&mutex_);
  std::vector<storage::v1::Record> records;
  const auto log = logs_.find(run_id);
  if (log == logs_.end()) return records;
  const auto size = static_cast<int64_t>(log->second.size());
  const int64_t begin = std::clamp<int64_t>(after_revision, 0, size);
  const int64_t end = begin + std::min(size - begin, count_max);
  records.assign(log->second.begin() + begin, log->second.begin() + end);
  return records;
}

absl::StatusOr<std::vector<std::string>> MemoryStore::ListLogs() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, log] : logs_) ids.push_back(id);
  return ids;
}

void MemoryStore::FailAppends(absl::Status status) {
  MutexLock lock(&mutex_);
  failure_ = std::move(status);
}

int MemoryStore::append_count() const {
  MutexLock lock(&mutex_);
  return append_count_;
}

}  // namespace atl::coordinator
