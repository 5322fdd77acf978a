// A copy that either of two threads makes: a background thread, or the thread
// that is about to overwrite the original. The first one makes it; the second
// waits only while the copy runs. Thread-safe.

#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl::worker {

class CopyOnce {
 public:
  // Makes `copy` due. Drops an earlier one that has not started.
  void Begin(std::function<void()> copy);

  // Returns once no copy is due or running: makes the due copy, or waits for
  // the thread that makes it.
  void Finish();

  // Threads that wait for a running copy. For tests.
  int waiter_count() const;

 private:
  void AwaitMade() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar made_;
  std::function<void()> due_ ABSL_GUARDED_BY(mutex_);
  bool is_being_made_ ABSL_GUARDED_BY(mutex_) = false;
  int waiter_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::worker
