// The wishes of an island's user while the island runs: to pause it, to let it
// continue, to end it. Level-triggered: the island looks at the newest wishes.
//
// Thread-safe.

#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl::worker {

class IslandControl {
 public:
  struct Wishes {
    std::string hold;  // Why the island is on hold; empty: it may train.
    bool finish = false;
  };

  // The island takes no further inner step and keeps its membership. `reason`
  // is for people and is not empty.
  void Hold(const std::string& reason);
  void Release() { Hold(""); }
  // The island contributes the round in progress, waits for the outcome, leaves
  // and ends with OK. This cannot be taken back.
  void Finish();

  Wishes Get() const;

  // Calls `on_change` after each change, until the next call of Listen. An
  // empty `on_change` is not called. `on_change` must not call this object.
  void Listen(std::function<void()> on_change);

 private:
  mutable Mutex mutex_;
  Wishes wishes_ ABSL_GUARDED_BY(mutex_);
  // Called under the mutex, so that it does not run after Listen has returned.
  std::function<void()> on_change_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::worker
