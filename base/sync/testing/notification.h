// An event that happens once: one thread notifies, any number wait. Like
// absl::Notification, over a Mutex that ThreadSanitizer understands.
// Thread-safe.

#pragma once

#include "absl/time/time.h"
#include "base/sync/mutex.h"

namespace atl {

class Notification {
 public:
  Notification() = default;
  Notification(const Notification&) = delete;
  Notification& operator=(const Notification&) = delete;

  // Wakes all present and future waiters. Idempotent.
  void Notify() {
    MutexLock lock(&mutex_);
    notified_ = true;
    condition_.SignalAll();
  }

  bool HasBeenNotified() const {
    MutexLock lock(&mutex_);
    return notified_;
  }

  // Waits at most `timeout`. Returns whether it has been notified.
  bool WaitWithTimeout(absl::Duration timeout) const {
    MutexLock lock(&mutex_);
    return condition_.AwaitWithTimeout(&mutex_, timeout,
                                       [this] { return notified_; });
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar condition_;
  bool notified_ = false;  // Guarded by mutex_, also in predicates.
};

}  // namespace atl
