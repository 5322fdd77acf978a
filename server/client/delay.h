// Delays a callback without a thread. Thread-safe.

#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "grpcpp/alarm.h"

namespace atl::server {

class Delay {
 public:
  // Runs `then`, always, on a gRPC thread: after `wait`, or at once if hurried.
  // Requires: nothing is waiting.
  void Start(absl::Duration wait, const std::function<void()>& then) {
    MutexLock lock(&mutex_);
    if (hurried_) wait = absl::ZeroDuration();
    // The previous alarm may still be on the stack; it keeps what it needs.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(absl::ToChronoTime(absl::Now() + wait),
                [then](bool /*in_time*/) { then(); });
  }

  // Runs the waiting callback now; later ones do not wait.
  void Hurry() {
    MutexLock lock(&mutex_);
    hurried_ = true;
    if (alarm_ != nullptr) alarm_->Cancel();
  }

 private:
  Mutex mutex_;
  bool hurried_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
