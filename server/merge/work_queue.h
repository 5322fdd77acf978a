// Threads that run tasks in the order of posting, and threads that share the
// tiles of one task. Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl::server {

// Tasks start in order; with one thread they also end in order. Its users bound
// the length: a shard's actions are bounded, a contribution has one finish.
class WorkQueue {
 public:
  // `nice`: added to the threads' niceness, 0 to 19.
  explicit WorkQueue(int thread_count, int nice = 0);
  // As Stop.
  ~WorkQueue();

  void Post(std::function<void()> task);
  // Drops tasks that have not started and waits for running ones. Idempotent.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Runs fn(worker, index) for every index in [0, count), on `thread_count`
// threads with the caller's; returns when all are done. Concurrent calls have
// different `worker`s in [0, thread_count).
class TilePool {
 public:
  explicit TilePool(int thread_count);
  ~TilePool();

  int thread_count() const { return static_cast<int>(threads_.size()) + 1; }

  // One call at a time.
  void Run(int64_t count, const std::function<void(int, int64_t)>& fn);

 private:
  void Work(int worker);
  void Share(int worker, int64_t count,
             const std::function<void(int, int64_t)>& fn);

  Mutex mutex_;
  CondVar changed_;
  const std::function<void(int, int64_t)>* fn_ ABSL_GUARDED_BY(mutex_) =
      nullptr;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t job_ ABSL_GUARDED_BY(mutex_) = 0;
  int busy_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace atl::server
