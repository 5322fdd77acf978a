#include "worker/island/copy_once.h"

#include <utility>

namespace atl::worker {

void CopyOnce::Begin(std::function<void()> copy) {
  MutexLock lock(&mutex_);
  AwaitMade();
  due_ = std::move(copy);
}

void CopyOnce::Finish() {
  std::function<void()> copy;
  {
    MutexLock lock(&mutex_);
    AwaitMade();
    if (!due_) return;
    copy.swap(due_);
    is_being_made_ = true;
  }
  copy();
  MutexLock lock(&mutex_);
  is_being_made_ = false;
  made_.SignalAll();
}

int CopyOnce::waiter_count() const {
  MutexLock lock(&mutex_);
  return waiter_count_;
}

void CopyOnce::AwaitMade() {
  ++waiter_count_;
  while (is_being_made_) made_.Wait(&mutex_);
  --waiter_count_;
}

}  // namespace atl::worker
