#include "coordinator/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "base/status/status_macros.h"

namespace atl::coordinator {

absl::Status MemoryStore::Append(absl::Span<const LogAppend> appends) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(std::exchange(next_failure_, absl::OkStatus()));
  RETURN_IF_ERROR(revisions_.Check(appends));
  for (const LogAppend& append : appends) {
    std::vector<storage::v1::Record>& log = logs_[append.run_id];
    log.insert(log.end(), append.records.begin(), append.records.end());
  }
  revisions_.Advance(appends);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemoryStore::ListLogs() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (const auto& [name, log] : logs_) {
    if (!log.empty()) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::vector<storage::v1::Record>> MemoryStore::Read(
    absl::string_view run_id, int64_t after_revision,
    int64_t record_count_max) const {
  MutexLock lock(&mutex_);
  const auto log = logs_.find(run_id);
  if (log == logs_.end()) return std::vector<storage::v1::Record>();
  const int64_t size = log->second.size();
  const int64_t begin = std::clamp<int64_t>(after_revision, 0, size);
  const int64_t count = std::min(record_count_max, size - begin);
  return std::vector<storage::v1::Record>(log->second.begin() + begin,
                                          log->second.begin() + begin + count);
}

int64_t MemoryStore::LastRevision(absl::string_view run_id) const {
  MutexLock lock(&mutex_);
  return revisions_.Last(run_id);
}

void MemoryStore::FailNextAppend(absl::Status status) {
  MutexLock lock(&mutex_);
  next_failure_ = std::move(status);
}

}  // namespace atl::coordinator
