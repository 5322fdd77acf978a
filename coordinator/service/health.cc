#include "coordinator/service/health.h"

#include "absl/status/status.h"

namespace atl::coordinator {

Health::Health(Metrics& metrics) : metrics_(metrics) {
  MutexLock lock(&mutex_);
  Show();
}

void Health::SetListeners(Listeners* listeners) {
  MutexLock lock(&mutex_);
  listeners_ = listeners;
  Show();
}

void Health::SetStoring(bool storing) {
  MutexLock lock(&mutex_);
  storing_ = storing;
  Show();
}

void Health::SetStopping() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  Show();
}

void Health::Show() {
  absl::Status ready;
  if (stopping_) {
    ready = absl::UnavailableError("stopping");
  } else if (listeners_ == nullptr) {
    ready = absl::UnavailableError("recovering: the log is being replayed");
  } else if (!storing_) {
    ready = absl::UnavailableError(
        "waiting for the disk: the store takes no records");
  }
  metrics_.SetReady(ready);
  if (listeners_ != nullptr) listeners_->SetServing(ready.ok());
}

}  // namespace atl::coordinator
