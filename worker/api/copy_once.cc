#include "worker/api/copy_once.h"

#include <utility>

namespace atl::worker {

void CopyOnce::Begin(std::function<void()> copy) {
  MutexLock lock(&mutex_);
  while (is_being_made_) made_.Wait(&mutex_);
  due_ = std::move(copy);
}

void CopyOnce::Finish() {
  std::function<void()> copy;
  {
    MutexLock lock(&mutex_);
    while (is_being_made_) made_.Wait(&mutex_);
    if (!due_) return;
    copy.swap(due_);
    is_being_made_ = true;
  }
  copy();
  MutexLock lock(&mutex_);
  is_being_made_ = false;
  made_.SignalAll();
}

}  // namespace atl::worker
