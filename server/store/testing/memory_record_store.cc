#include "server/store/testing/memory_record_store.h"

#include <utility>

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
  records_.Apply(batch);
  if (sync == Sync::kMachine) synced_ = records_;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryRecordStore::Get(
    absl::string_view name) const {
  MutexLock lock(&mutex_);
  return records_.Get(name);
}

absl::StatusOr<std::vector<RecordStore::Record>> MemoryRecordStore::Scan(
    absl::string_view prefix) const {
  MutexLock lock(&mutex_);
  return records_.Scan(prefix);
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
