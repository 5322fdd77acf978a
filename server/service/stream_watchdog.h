// Ends bulk streams that are too slow: attacks or dead peers, which gRPC would
// keep forever. Shares a bounded number of places between callers
// (server/core/places.h). Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "server/core/places.h"
#include "server/waiters/push_waiters.h"
#include "server/waiters/stream_progress.h"

namespace atl::server {

struct StreamLimits {
  int stream_count_max = 256;                 // Places for one kind.
  absl::Duration window = absl::Seconds(20);  // Speed is measured over this.
};

class StreamWatchdog {
 public:
  // `clock` must outlive it. `run_thread` false: a test calls Check.
  StreamWatchdog(const StreamLimits& limits, const Clock& clock,
                 bool run_thread = true);
  ~StreamWatchdog();

  // Watches a stream of `caller` and calls its gate:
  //   DEADLINE_EXCEEDED (CallTooSlow): too slow, again in each further window.
  //   RESOURCE_EXHAUSTED, QUEUE_FULL (CallDisplaced): one ticket has waited too
  //   long for memory.
  //   CallTooSlow every second, from the second Check on, once it is `ending`.
  // If no place is free, either a stream of the caller with the most places is
  // displaced (CallDisplaced), or this call fails:
  // RESOURCE_EXHAUSTED, TOO_MANY_STREAMS: no place; the stream is not watched.
  // After Close: its status; the stream is not watched.
  absl::Status Add(std::shared_ptr<WaiterGate> gate,
                   std::shared_ptr<StreamProgress> progress,
                   const std::string& caller);
  // The stream ends with the status of `check` (CallDisplaced) once that is not
  // OK: at each Check, and at CheckAllowed. `check` must not call back.
  void LimitTo(const WaiterGate* gate, std::function<absl::Status()> check);
  void CheckAllowed();
  // Keeps watching the stream without a place; its kind needs another bound.
  void LeavePlace(const WaiterGate* gate);
  void Remove(const WaiterGate* gate);

  // Refuses further streams with `status`, and displaces all but those that are
  // complete. The first call counts.
  void Close(const absl::Status& status);
  // Waits until no stream is watched; false at `deadline`.
  bool WaitUntilEmpty(absl::Time deadline);

  void Check();

 private:
  struct Entry {
    std::shared_ptr<WaiterGate> gate;
    std::shared_ptr<StreamProgress> progress;
    int64_t number = 0;
    absl::Time window_start;
    int64_t bytes_at_start = 0;
    bool seen_ending = false;
    int64_t budget_turn = 0;  // The ticket at the last check.
    absl::Time budget_wait_start;
    std::function<absl::Status()> check;  // LimitTo's check; may be null.
  };

  void Run();

  const StreamLimits limits_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  CondVar emptied_;
  std::map<const WaiterGate*, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // By number; numbers grow.
  std::map<int64_t, std::shared_ptr<WaiterGate>> gates_ ABSL_GUARDED_BY(mutex_);
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  Places places_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // OK: open.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::server
