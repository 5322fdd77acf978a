#include "server/store/testing/memory_record_store.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace atl::server {

absl::Status MemoryRecordStore::Write(const RecordBatch& batch, Sync sync) {
  std::function<void()> before;
  {
    MutexLock lock(&mutex_);
    before = std::exchange(before_next_write_, nullptr);
  }
  if (before != nullptr) before();
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  for (const RecordBatch::Change& change : batch.changes()) {
    switch (change.kind) {
      case RecordBatch::Change::Kind::kPut:
        records_[change.name] = change.value;
        break;
      case RecordBatch::Change::Kind::kDelete:
        records_.erase(change.name);
        break;
      case RecordBatch::Change::Kind::kDeletePrefix: {
        auto it = records_.lower_bound(change.name);
        while (it != records_.end() &&
               absl::StartsWith(it->first, change.name)) {
          it = records_.erase(it);
        }
        break;
      }
    }
  }
  if (sync == Sync::kMachine) synced_ = records_;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryRecordStore::Get(
    absl::string_view name) const {
  MutexLock lock(&mutex_);
  const auto it = records_.find(std::string(name));
  if (it == records_.end()) {
    return absl::NotFoundError(absl::StrCat("no record ", name));
  }
  return it->second;
}

absl::StatusOr<std::vector<RecordStore::Record>> MemoryRecordStore::Scan(
    absl::string_view prefix) const {
  MutexLock lock(&mutex_);
  std::vector<Record> found;
  for (auto it = records_.lower_bound(std::string(prefix));
       it != records_.end() && absl::StartsWith(it->first, prefix); ++it) {
    found.push_back(*it);
  }
  return found;
}

void MemoryRecordStore::CutPower() {
  MutexLock lock(&mutex_);
  records_ = synced_;
}

void MemoryRecordStore::FailWrites(absl::Status status) {
  MutexLock lock(&mutex_);
  failure_ = std::move(status);
}

void MemoryRecordStore::BeforeNextWrite(std::function<void()> hook) {
  MutexLock lock(&mutex_);
  before_next_write_ = std::move(hook);
}

}  // namespace atl::server
