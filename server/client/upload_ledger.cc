#include "server/client/upload_ledger.h"

#include <algorithm>

namespace atl::server {

UploadLedger::UploadLedger(IndexRange blocks, int64_t byte_count, int64_t unit)
    : blocks_(blocks),
      byte_count_(byte_count),
      unit_(unit),
      states_(static_cast<size_t>(blocks.size())),
      open_count_(blocks.size()) {}

int64_t UploadLedger::Asked() {
  MutexLock lock(&mutex_);
  return ++now_;
}

bool UploadLedger::Answered(int64_t asked,
                            absl::Span<const IndexRange> missing) {
  MutexLock lock(&mutex_);
  ++now_;
  int64_t count = 0;
  open_count_ = 0;
  auto range = missing.begin();
  for (size_t i = 0; i < states_.size(); ++i) {
    const int64_t block = blocks_.begin + static_cast<int64_t>(i);
    while (range != missing.end() && range->end <= block) ++range;
    const bool is_missing = range != missing.end() && range->begin <= block;
    count += is_missing;
    Block& known = states_[i];
    if (!is_missing) {
      known = {kHeld, now_};
    } else if (known.state < 0 && known.since <= asked) {
      known.state = kDue;
    }
    open_count_ += known.state == kUnknown || known.state == kDue;
  }
  first_due_ = 0;
  const bool fewer = missing_count_ >= 0 && count < missing_count_;
  missing_count_ = count;
  return fewer;
}

IndexRange UploadLedger::Next(int stream, int64_t count_max) {
  MutexLock lock(&mutex_);
  if (stored_) return {};
  while (first_due_ < states_.size() && states_[first_due_].state != kDue) {
    ++first_due_;
  }
  const size_t begin = first_due_;
  const auto count_most = static_cast<size_t>(count_max);
  const auto unit = static_cast<size_t>(unit_);
  const size_t unit_end =
      count_most < unit
          ? std::min(begin + count_most, (begin / unit + 1) * unit)
          : (begin + count_most) / unit * unit;
  const size_t end = std::min(states_.size(), unit_end);
  while (first_due_ < end && states_[first_due_].state == kDue) {
    states_[first_due_++].state = stream;
  }
  const auto count = static_cast<int64_t>(first_due_ - begin);
  open_count_ -= count;
  const int64_t first = blocks_.begin + static_cast<int64_t>(begin);
  return {first, first + count};
}

void UploadLedger::Broke(int stream) {
  MutexLock lock(&mutex_);
  ++now_;
  for (Block& block : states_) {
    if (block.state != stream) continue;
    block = {kUnknown, now_};
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
