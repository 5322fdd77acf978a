#include "worker/island/island_control.h"

#include <utility>

namespace atl::worker {

void IslandControl::Hold(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (wishes_.hold == reason) return;
  wishes_.hold = reason;
  if (on_change_) on_change_();
}

void IslandControl::Finish() {
  MutexLock lock(&mutex_);
  wishes_.finish = true;
  if (on_change_) on_change_();
}

IslandControl::Wishes IslandControl::Get() const {
  MutexLock lock(&mutex_);
  return wishes_;
}

void IslandControl::Listen(std::function<void()> on_change) {
  MutexLock lock(&mutex_);
  on_change_ = std::move(on_change);
}

}  // namespace atl::worker
