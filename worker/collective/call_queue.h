// Runs the calls of one rank of one group in order: Run() on the caller's
// thread, Start() on its own, made by the first Start(). Thread-compatible.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync/mutex.h"
#include "worker/collective/call.h"
#include "worker/collective/collective.h"

namespace atl::collective {

class CallQueue {
 public:
  // Runs a call in bounded time; called by one thread at a time.
  using Execute = std::function<absl::Status(const Call& call)>;

  explicit CallQueue(Execute execute) : execute_(std::move(execute)) {}
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  // Finishes all queued calls first.
  ~CallQueue();

  // Waits for all earlier calls, then runs the call on this thread.
  absl::Status Run(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);

  Pending Start(Call call) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Entry;

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const Execute execute_;
  std::thread thread_;  // Only the caller uses it.

  Mutex mutex_;
  CondVar condition_;
  // The front call is running. Shared with its waiting handle.
  std::deque<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::collective
