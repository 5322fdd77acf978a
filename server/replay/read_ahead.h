// Reads batches of items ahead of the consumer: while one batch is used, the
// next is read, several items at a time. At most two are in memory. One thread
// calls Next; reads run on threads of its own.

#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync/mutex.h"
#include "server/client/kept_client.h"

namespace atl::server {

class ReadAhead {
 public:
  struct Item {
    std::vector<char> bytes;
    std::vector<KeptDigests> digests;
  };
  // Reads an item, on several threads at once. Returns soon after a stop.
  using Read = std::function<absl::StatusOr<Item>(size_t batch, size_t item,
                                                  std::stop_token stop)>;

  // Batch b has item_counts[b] items. Reads `thread_count` >= 1 items at a
  // time, and starts with the first batch.
  ReadAhead(std::vector<size_t> item_counts, int thread_count, Read read);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Returns the next complete batch and starts to read the batch after it. The
  // caller no longer needs the batch before. Requires: a batch is left.
  // Errors: that of the first item that could not be read. An error is final:
  // every later call returns it, also for batches that were read ahead.
  absl::StatusOr<std::vector<Item>> Next();

 private:
  absl::StatusOr<std::vector<Item>> TakeBatch(size_t batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Slot {
    enum { kDue, kReading, kRead } state = kDue;
    absl::Status status;
    Item item;
  };
  void Work(std::stop_token stop);
  bool MayRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if no item of `batch` is being read, or will be.
  bool IsOver(size_t batch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<size_t> item_counts_;
  const Read read_;
  Mutex mutex_;
  CondVar changed_;
  // Batches that Next was called for.
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  // The next item to read; reading stops after an error.
  size_t claimed_batch_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t claimed_item_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // Next has returned it.
  // By batch; taken batches are empty.
  std::vector<std::vector<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;  // Last: they use all the others.
};

}  // namespace atl::server
