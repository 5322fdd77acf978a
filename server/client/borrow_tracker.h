// Counts the slices of memory that gRPC still reads. After a finished write,
// even after the call's end, the transport may read the slices until they are
// sent. So the lender waits here before it frees the memory. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rpc/chunk_codec.h"
#include "base/sync/mutex.h"
#include "grpcpp/support/slice.h"

namespace atl::server {

class BorrowTracker {
 public:
  BorrowTracker() = default;
  BorrowTracker(const BorrowTracker&) = delete;
  BorrowTracker& operator=(const BorrowTracker&) = delete;

  // A slice over `bytes`. They and this object must outlive the slice.
  // Requires: not empty.
  grpc::Slice Lend(absl::string_view bytes) {
    {
      MutexLock lock(&mutex_);
      ++lent_count_;
    }
    return rpc::BorrowSlice(bytes, &BorrowTracker::Return, this);
  }

  // Waits until nothing is lent; false after `timeout`.
  bool WaitUntilReturned(absl::Duration timeout) {
    MutexLock lock(&mutex_);
    return returned_.AwaitWithTimeout(&mutex_, timeout,
                                      [this] { return lent_count_ == 0; });
  }

 private:
  static void Return(void* tracker) {
    auto* self = static_cast<BorrowTracker*>(tracker);
    MutexLock lock(&self->mutex_);
    if (--self->lent_count_ == 0) self->returned_.SignalAll();
  }

  Mutex mutex_;
  CondVar returned_;
  int64_t lent_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::server
