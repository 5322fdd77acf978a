// std::mutex with thread-safety annotations, and a condition variable. Not
// absl::Mutex: with Debian's build ThreadSanitizer reports false races.
// Thread-safe.

#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace atl {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  // Returns false, without waiting, if another thread holds it.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  // Tells the analysis, unchecked, that the caller holds the mutex.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits for a condition under a mutex that the caller holds. Wake-ups may be
// spurious: wait in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // Waits at most `timeout`, on a monotonic clock. True if it timed out.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    // Bounded, so that no duration overflows the clock.
    timeout = std::min(timeout, absl::Hours(24));
    const bool timed_out =
        condition_.wait_until(lock, std::chrono::steady_clock::now() +
                                        absl::ToChronoNanoseconds(timeout)) ==
        std::cv_status::timeout;
    lock.release();
    return timed_out;
  }

  // Waits until `deadline` of the system's clock. True if it timed out.
  bool WaitWithDeadline(Mutex* mutex, absl::Time deadline) {
    return WaitWithTimeout(mutex, deadline - absl::Now());
  }

  // Waits at most `timeout` until `condition()` holds, and returns whether it
  // does. `condition` is called under the mutex.
  template <typename Condition>
  bool AwaitWithTimeout(Mutex* mutex, absl::Duration timeout,
                        Condition&& condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    timeout = std::min(timeout, absl::Hours(24));
    const bool holds = condition_.wait_until(
        lock,
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout),
        [&condition] { return condition(); });
    lock.release();
    return holds;
  }

  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace atl
