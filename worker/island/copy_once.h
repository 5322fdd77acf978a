// A copy that two threads want made, of which either may make it: one beside,
// as soon as it comes to it, and one before it changes what is copied.
//
// Whoever comes first makes it; the other waits for it then, and for nothing
// else, so that neither waits for a thread that has not begun. Thread-safe.

#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl::worker {

class CopyOnce {
 public:
  // From now on `copy` is due. One that was due before, and is not made, never
  // will be.
  void Begin(std::function<void()> copy);

  // Returns when none is due: makes the one that is, or waits for who does.
  void Finish();

  // Threads that wait, in Finish or Begin, for who makes it.
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
