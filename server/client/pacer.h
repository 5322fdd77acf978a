// Keeps the streams of one direction under a cap: a TokenBucket with lock and
// clock. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "base/time/token_bucket.h"

namespace atl::server {

class Pacer {
 public:
  // `bytes_per_second` 0: no cap. `clock` must outlive this.
  explicit Pacer(double bytes_per_second, const Clock& clock = SystemClock());

  bool is_capped() const { return bytes_per_second_ > 0; }

  // Takes `bytes`; returns how long they must wait.
  absl::Duration Take(int64_t bytes);

  // Returns `bytes` that were taken and will not move.
  void GiveBack(int64_t bytes);

  // Bytes that the cap allows in `span`, at least `min`; `max` without a cap.
  int64_t BytesIn(absl::Duration span, int64_t min, int64_t max) const;

 private:
  const double bytes_per_second_;
  const Clock& clock_;
  Mutex mutex_;
  TokenBucket bucket_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
