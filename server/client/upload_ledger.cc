#include "server/client/upload_ledger.h"

#include <algorithm>

namespace atl::server {

UploadLedger::UploadLedger(IndexRange blocks, int64_t byte_count)
    : blocks_(blocks),
      byte_count_(byte_count),
      states_(static_cast<size_t>(blocks.size()), kUnknown),
      open_count_(blocks.size()) {}

bool UploadLedger::Answered(absl::Span<const IndexRange> missing) {
  MutexLock lock(&mutex_);
  int64_t count = 0;
  open_count_ = 0;
  auto range = missing.begin();
  for (size_t i = 0; i < states_.size(); ++i) {
    const int64_t block = blocks_.begin + static_cast<int64_t>(i);
    while (range != missing.end() && range->end <= block) ++range;
    const bool is_missing = range != missing.end() && range->begin <= block;
    count += is_missing;
    int32_t& state = states_[i];
    if (!is_missing) {
      state = kHeld;
    } else if (state < 0) {
      state = kDue;
      ++open_count_;
    }
  }
  first_due_ = 0;
  const bool fewer = missing_count_ >= 0 && count < missing_count_;
  missing_count_ = count;
  return fewer;
}

IndexRange UploadLedger::Next(int stream, int64_t count_max) {
  MutexLock lock(&mutex_);
  if (stored_) return {};
  while (first_due_ < states_.size() && states_[first_due_] != kDue) {
    ++first_due_;
  }
  const size_t begin = first_due_;
  while (first_due_ < states_.size() && states_[first_due_] == kDue &&
         static_cast<int64_t>(first_due_ - begin) < count_max) {
    states_[first_due_++] = stream;
  }
  const auto count = static_cast<int64_t>(first_due_ - begin);
  open_count_ -= count;
  const int64_t first = blocks_.begin + static_cast<int64_t>(begin);
  return {first, first + count};
}

void UploadLedger::Broke(int stream) {
  MutexLock lock(&mutex_);
  for (int32_t& state : states_) {
    if (state != stream) continue;
    state = kUnknown;
    ++open_count_;
  }
}

void UploadLedger::Stored() {
  MutexLock lock(&mutex_);
  stored_ = true;
}

bool UploadLedger::is_stored() const {
  MutexLock lock(&mutex_);
  return stored_;
}

int64_t UploadLedger::done_bytes() const {
  MutexLock lock(&mutex_);
  if (stored_) return byte_count_;
  const double share =
      static_cast<double>(open_count_) / static_cast<double>(states_.size());
  return byte_count_ -
         static_cast<int64_t>(share * static_cast<double>(byte_count_));
}

}  // namespace atl::server
