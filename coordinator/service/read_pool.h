// Threads that read the store and make answers for queries, so that the event
// loop's thread never waits for the disk or encodes on a reader's behalf.
//
// Thread-safe.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync/mutex.h"
#include "coordinator/service/waiting_calls.h"

namespace atl::coordinator {

class ReadPool {
 public:
  // Reads that wait, or whose answer of at most 2 MiB is held. A caller that
  // floods takes only its part.
  static constexpr WaitingCalls::Bounds kBounds = {
      .all = {48, size_t{16} << 20},
      .islands = {24, size_t{10} << 20},
      .readers = {24, size_t{10} << 20},
      .a_run = {16, size_t{6} << 20},
      .a_run_readers = {16, size_t{6} << 20},
      .a_caller = {4, size_t{4} << 20},
      .a_reader = {4, size_t{4} << 20}};
  // The read counts until the last copy is destroyed: a reader may take its
  // answer slowly, or never.
  using Held = std::shared_ptr<const void>;
  using ReadFunction =
      std::function<void(const absl::Status& admitted, Held held)>;

  explicit ReadPool(int thread_count = 2,
                    const WaitingCalls::Bounds& bounds = kBounds);
  // Stops.
  ~ReadPool();
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;

  // Counts a read of `origin` that is yet to come.
  //
  // RESOURCE_EXHAUSTED, QUEUE_FULL: too many wait.
  absl::StatusOr<Held> Admit(const CallOrigin& origin);
  // Calls `read` once, on a thread of the pool, with OK; or with CANCELLED, if
  // the caller is gone by then. `held`: of Admit.
  //
  // UNAVAILABLE, STOPPING: the pool has stopped; `read` is not called.
  absl::Status Run(const CallOrigin& origin, Held held, ReadFunction read);
  // Both.
  absl::Status Run(const CallOrigin& origin, ReadFunction read);
  // The same for reads of our own, which come first, and whose number the caller
  // bounds: never full. Does nothing after Stop.
  void RunOwn(std::function<void()> read);

  // Finishes the reads that were accepted. Idempotent.
  void Stop();

 private:
  struct Read {
    CallOrigin origin;
    Held held;
    ReadFunction run;
  };
  class Count;

  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<Read> own_ ABSL_GUARDED_BY(mutex_);
  std::deque<Read> reads_ ABSL_GUARDED_BY(mutex_);
  // Answers may outlive the pool.
  const std::shared_ptr<Count> count_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace atl::coordinator
