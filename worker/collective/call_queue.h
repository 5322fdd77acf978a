// The calls of one rank of one group, made one after the other.
//
// A call that is waited for at once runs on the caller's thread; a thread is
// started with the first that is not. Thread-compatible.

#ifndef WORKER_COLLECTIVE_CALL_QUEUE_H_
#define WORKER_COLLECTIVE_CALL_QUEUE_H_

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
  // Makes a call and returns its status, in bounded time. Never called by two
  // threads at once.
  using Execute = std::function<absl::Status(const Call& call)>;

  explicit CallQueue(Execute execute) : execute_(std::move(execute)) {}
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  // Makes all calls that are waiting, then ends the thread.
  ~CallQueue();

  // Waits for all before it, then makes the call here.
  absl::Status Run(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);

  // Queues the call.
  Pending Start(Call call) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Entry;

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const Execute execute_;
  std::thread thread_;  // Of the caller alone.

  Mutex mutex_;
  CondVar condition_;
  // The front is being made. Shared with the handle that waits for it.
  std::deque<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_CALL_QUEUE_H_
