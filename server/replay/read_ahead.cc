#include "server/replay/read_ahead.h"

#include <utility>

#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::server {

ReadAhead::ReadAhead(std::vector<size_t> item_counts, int thread_count,
                     Read read)
    : item_counts_(std::move(item_counts)), read_(std::move(read)) {
  for (const size_t count : item_counts_) slots_.emplace_back(count);
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this](std::stop_token stop) { Work(stop); });
  }
}

ReadAhead::~ReadAhead() {
  for (std::jthread& thread : threads_) thread.request_stop();
  {
    MutexLock lock(&mutex_);
    failed_ = true;
    changed_.SignalAll();
  }
  threads_.clear();
}

absl::StatusOr<std::vector<ReadAhead::Item>> ReadAhead::Next() {
  MutexLock lock(&mutex_);
  CHECK(taken_ < item_counts_.size()) << "there is no batch left";
  const size_t batch = taken_++;
  RETURN_IF_ERROR(error_);
  changed_.SignalAll();
  while (!IsOver(batch)) changed_.Wait(&mutex_);
  absl::StatusOr<std::vector<Item>> items = TakeBatch(batch);
  error_ = items.status();
  return items;
}

absl::StatusOr<std::vector<ReadAhead::Item>> ReadAhead::TakeBatch(
    size_t batch) {
  std::vector<Item> items;
  for (Slot& slot : slots_[batch]) {
    RETURN_IF_ERROR(slot.status);
    // An earlier item failed, in this batch or another.
    if (slot.state != Slot::kRead) {
      return absl::CancelledError(
          "not read, because an earlier item could not be read");
    }
    items.push_back(std::move(slot.item));
  }
  slots_[batch].clear();
  return items;
}

bool ReadAhead::MayRead() {
  while (claimed_batch_ < item_counts_.size() &&
         claimed_item_ >= item_counts_[claimed_batch_]) {
    ++claimed_batch_;
    claimed_item_ = 0;
  }
  // The batch in use is taken_ - 1.
  return !failed_ && claimed_batch_ < item_counts_.size() &&
         claimed_batch_ <= taken_;
}

bool ReadAhead::IsOver(size_t batch) const {
  for (const Slot& slot : slots_[batch]) {
    if (slot.state == Slot::kReading) return false;
    if (slot.state == Slot::kDue && !failed_) return false;
  }
  return true;
}

void ReadAhead::Work(std::stop_token stop) {
  while (true) {
    size_t batch = 0, item = 0;
    {
      MutexLock lock(&mutex_);
      while (!stop.stop_requested() && !MayRead()) {
        if (failed_ || claimed_batch_ >= item_counts_.size()) return;
        changed_.Wait(&mutex_);
      }
      if (stop.stop_requested()) return;
      batch = claimed_batch_;
      item = claimed_item_++;
      slots_[batch][item].state = Slot::kReading;
    }
    absl::StatusOr<Item> read = read_(batch, item, stop);
    MutexLock lock(&mutex_);
    Slot& slot = slots_[batch][item];
    slot.state = Slot::kRead;
    slot.status = read.status();
    if (read.ok()) {
      slot.item = *std::move(read);
    } else {
      failed_ = true;
    }
    changed_.SignalAll();
  }
}

}  // namespace atl::server
