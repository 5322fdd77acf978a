// Ends bulk streams that are too slow, and bounds how many there are, each
// caller to its share (server/core/places.h).
//
// A stream that holds a place but moves next to nothing is an attack or a dead
// peer; gRPC itself would keep it for ever.
//
// Thread-safe.

#ifndef SERVER_SERVICE_STREAM_WATCHDOG_H_
#define SERVER_SERVICE_STREAM_WATCHDOG_H_

#include <atomic>
#include <cstdint>
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
  int stream_count_max = 256;                 // Places of one kind.
  absl::Duration window = absl::Seconds(20);  // Looked at as a whole.
  int64_t window_bytes_min = 16 << 10;        // Less in a window is too slow.
  // Longest wait for room (level ISLAND); less than our clients' patience with
  // a stream on which nothing moves, a minute (DriverOptions::stall_timeout).
  absl::Duration room_wait_max = absl::Seconds(50);
};

class StreamWatchdog {
 public:
  // `clock` must outlive it. With `run_thread` false a test calls Check.
  StreamWatchdog(const StreamLimits& limits, const Clock& clock,
                 bool run_thread = true);
  ~StreamWatchdog();

  // Watches a stream of `caller`, whose gate is called with DEADLINE_EXCEEDED
  // (CallTooSlow) if it is too slow, again in each further window; with
  // RESOURCE_EXHAUSTED, QUEUE_FULL (CallDisplaced) if it has waited too long
  // with one turn for room; and every second, from the second on, once it is
  // `ending` (CallTooSlow). If there are too many, a stream of who has most is
  // told to end (CallDisplaced), or, if the caller has its share, this one has
  // to:
  //
  // RESOURCE_EXHAUSTED, TOO_MANY_STREAMS: it has no place, and is not watched.
  absl::Status Add(std::shared_ptr<WaiterGate> gate,
                   std::shared_ptr<StreamProgress> progress,
                   const std::string& caller);
  // The stream is watched on, but leaves its place to another: something else
  // bounds how many there are of its kind.
  void LeavePlace(const WaiterGate* gate);
  void Remove(const WaiterGate* gate);

  // Looks at every stream once.
  void Check();

 private:
  struct Entry {
    std::shared_ptr<WaiterGate> gate;
    std::shared_ptr<StreamProgress> progress;
    int64_t number = 0;
    absl::Time window_start;
    int64_t bytes_at_start = 0;
    bool seen_ending = false;
    int64_t room_turn = 0;  // As it was when last looked at, and since when.
    absl::Time room_wait_start;
  };

  void Run();

  const StreamLimits limits_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  std::map<const WaiterGate*, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // Gates by number; the newest has the largest.
  std::map<int64_t, std::shared_ptr<WaiterGate>> gates_ ABSL_GUARDED_BY(mutex_);
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  Places places_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_STREAM_WATCHDOG_H_
