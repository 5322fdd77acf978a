// Counts the pieces of memory that gRPC still reads.
//
// A write that is done has only been handed to the transport, which may read
// its slices until the bytes are on the wire, even after the call has ended. So
// whoever lends memory waits here before giving it back. Thread-safe.

#ifndef SERVER_CLIENT_BORROW_TRACKER_H_
#define SERVER_CLIENT_BORROW_TRACKER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rpc/chunk_codec.h"
#include "grpcpp/support/slice.h"

namespace atl::server {

class BorrowTracker {
 public:
  BorrowTracker() = default;
  BorrowTracker(const BorrowTracker&) = delete;
  BorrowTracker& operator=(const BorrowTracker&) = delete;

  // A slice over `bytes`, which must stay until everything is returned; this
  // object too. Requires: not empty.
  grpc::Slice Lend(absl::string_view bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++lent_count_;
    }
    return rpc::BorrowSlice(bytes, &BorrowTracker::Return, this);
  }

  // True once nothing is lent; false if that takes longer than `timeout`.
  bool WaitUntilReturned(absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return returned_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                              [this] { return lent_count_ == 0; });
  }

 private:
  static void Return(void* tracker) {
    auto* self = static_cast<BorrowTracker*>(tracker);
    std::lock_guard<std::mutex> lock(self->mutex_);
    if (--self->lent_count_ == 0) self->returned_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable returned_;
  int64_t lent_count_ = 0;  // Guarded by mutex_.
};

}  // namespace atl::server

#endif  // SERVER_CLIENT_BORROW_TRACKER_H_
