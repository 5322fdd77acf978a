#include "server/merge/work_queue.h"

#include <utility>

#include "base/sync/lower_priority.h"

namespace atl::server {

WorkQueue::WorkQueue(int thread_count, int nice) {
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this, nice] {
      if (nice > 0) LowerPriority(nice);
      Run();
    });
  }
}

WorkQueue::~WorkQueue() { Stop(); }

void WorkQueue::Post(std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  changed_.Signal();
}

void WorkQueue::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkQueue::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

TilePool::TilePool(int thread_count) {
  for (int i = 1; i < thread_count; ++i) {
    threads_.emplace_back([this, i] { Work(i); });
  }
}

TilePool::~TilePool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void TilePool::Run(int64_t count, const std::function<void(int, int64_t)>& fn) {
  {
    MutexLock lock(&mutex_);
    fn_ = &fn;
    count_ = count;
    next_ = 0;
    ++job_;
    busy_count_ = static_cast<int>(threads_.size());
    changed_.SignalAll();
  }
  Share(0, count, fn);
  MutexLock lock(&mutex_);
  while (busy_count_ > 0) changed_.Wait(&mutex_);
  fn_ = nullptr;
}

void TilePool::Share(int worker, int64_t count,
                     const std::function<void(int, int64_t)>& fn) {
  while (true) {
    int64_t index;
    {
      MutexLock lock(&mutex_);
      if (next_ >= count) return;
      index = next_++;
    }
    fn(worker, index);
  }
}

void TilePool::Work(int worker) {
  int64_t seen = 0;
  while (true) {
    const std::function<void(int, int64_t)>* fn;
    int64_t count;
    {
      MutexLock lock(&mutex_);
      while (job_ == seen && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      seen = job_;
      fn = fn_;
      count = count_;
    }
    Share(worker, count, *fn);
    MutexLock lock(&mutex_);
    if (--busy_count_ == 0) changed_.SignalAll();
  }
}

}  // namespace atl::server
