// A clock that only a test advances. Thread-safe.

#pragma once

#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl {

class FakeClock : public Clock {
 public:
  // Starts at `start`; the default is an arbitrary whole second.
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000))
      : now_(start) {}

  absl::Time Now() const override {
    MutexLock lock(&mutex_);
    return now_;
  }

  void Advance(absl::Duration duration) {
    MutexLock lock(&mutex_);
    now_ += duration;
  }

  // May go backwards, as a machine's clock can.
  void Set(absl::Time now) {
    MutexLock lock(&mutex_);
    now_ = now;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl
