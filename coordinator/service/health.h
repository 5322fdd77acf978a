// Shows to callers and probes whether the coordinator serves: gRPC's health on
// every port, and /readyz of the metrics port. Both always say the same.
//
// It serves while its ports are open, its store takes records, and it was not
// told to stop. Thread-safe.

#pragma once

#include "absl/base/thread_annotations.h"
#include "base/metrics/metrics.h"
#include "base/sync/mutex.h"
#include "coordinator/service/listeners.h"

namespace atl::coordinator {

class Health {
 public:
  // Not ready: recovers. `metrics` must outlive this.
  explicit Health(Metrics& metrics);
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  // The ports are open. `listeners` must live until the next call with
  // another one; null: the ports are closed.
  void SetListeners(Listeners* listeners);
  // Whether the store takes records: EventLoop::Spec::on_serving.
  void SetStoring(bool storing);
  // Not ready, for good.
  void SetStopping();

 private:
  // Requires the mutex, so that the newest value is shown last.
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics& metrics_;

  Mutex mutex_;
  Listeners* listeners_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool storing_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::coordinator
