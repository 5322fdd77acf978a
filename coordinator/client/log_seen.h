// The newest place of the coordinator's log that a peer has seen.

#pragma once

#include "absl/base/thread_annotations.h"
#include "atoll/v1/run.pb.h"
#include "base/sync/mutex.h"

namespace atl::coordinator {

// Thread-safe.
class LogSeen {
 public:
  // Keeps `position` if it is the first one, or later in the same log. A
  // position without cluster_id is not set: older programs send none.
  void Note(const v1::LogPosition& position) {
    if (position.cluster_id().empty()) return;
    MutexLock lock(&mutex_);
    if (newest_.cluster_id().empty() ||
        (newest_.cluster_id() == position.cluster_id() &&
         newest_.index() < position.index())) {
      newest_ = position;
    }
  }

  // Sets `request.log_seen`, if there is a position.
  template <typename Request>
  void AddTo(Request& request) const {
    MutexLock lock(&mutex_);
    if (newest_.cluster_id().empty()) return;
    *request.mutable_log_seen() = newest_;
  }

  // Without cluster_id if there is none.
  v1::LogPosition newest() const {
    MutexLock lock(&mutex_);
    return newest_;
  }

 private:
  mutable Mutex mutex_;
  v1::LogPosition newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
