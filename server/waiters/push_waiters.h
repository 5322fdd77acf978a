// Tracks streams that wait for the outcome of contributions. Several may carry
// one contribution. Each learns when it is stored or refused, or that blocks
// are missing and no stream sends any longer. Thread-safe. Calls a stream while
// it holds only that stream's gate, never after the gate is closed.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"

namespace atl::server {

// A waiting stream. OnSettled is called at most once a key.
class PushWaiter {
 public:
  virtual ~PushWaiter() = default;
  // OK: stored. Otherwise the status to end with.
  virtual void OnSettled(const absl::Status& status) = 0;
  // The peer is too slow: end with `status`, if the peer takes it.
  virtual void OnTooSlow(const absl::Status& status) = 0;
  // Other streams need its place: end with `status` soon, or OnTooSlow follows.
  virtual void OnDisplaced(const absl::Status& status) = 0;
  // Level ISLAND: the contribution's blocks can be merged now.
  virtual void OnLiveMerge() {}
  // Level ISLAND: the merged blocks are discarded and must be pushed again.
  virtual void OnRestart() {}
  // Level ISLAND: the block that had to wait was merged.
  virtual void OnTaken() {}
  // Level ISLAND: there is memory for its next chunk.
  virtual void OnBudget() {}
};

// Lets callers outlive the waiter, which may end at any time.
class WaiterGate {
 public:
  explicit WaiterGate(PushWaiter* waiter) : waiter_(waiter) {}

  void Call(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (waiter_ != nullptr) waiter_->OnSettled(status);
  }
  void CallTooSlow(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (waiter_ != nullptr) waiter_->OnTooSlow(status);
  }
  void CallDisplaced(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (waiter_ != nullptr) waiter_->OnDisplaced(status);
  }
  void Call(void (PushWaiter::*event)()) {
    MutexLock lock(&mutex_);
    if (waiter_ != nullptr) (waiter_->*event)();
  }
  // The waiter is not called after this returns.
  void Close() {
    MutexLock lock(&mutex_);
    waiter_ = nullptr;
  }

 private:
  Mutex mutex_;
  PushWaiter* waiter_ ABSL_GUARDED_BY(mutex_);
};

class PushWaiters {
 public:
  // Most streams of one slot and fragment at level ISLAND: 64 processes with
  // four streams each. They wait for a whole round, so only this bounds them.
  static constexpr int kWaitingMax = 256;

  void Add(const ContributionKey& key, std::shared_ptr<WaiterGate> gate);
  // The same at level ISLAND, with a bound. At kWaitingMax, a stream that no
  // longer sends is told to call again; it only hears the outcome later. False,
  // and nothing is added, if all still send.
  bool AddBounded(const ContributionKey& key, std::shared_ptr<WaiterGate> gate);
  // The stream has stopped sending but still waits. True if it was listed and
  // no listed stream sends. Settled streams are not listed: their key may have
  // another contribution by then.
  bool EndSending(const ContributionKey& key, const WaiterGate* gate);
  // The stream has ended. Returns as EndSending.
  bool Remove(const ContributionKey& key, const WaiterGate* gate);
  // Settles and removes all streams of `key`.
  void Settle(const ContributionKey& key, const absl::Status& status);
  // The same for all streams.
  void SettleAll(const absl::Status& status);
  // The same for all contributions of `slot`, except imports.
  void SettleSlot(int32_t slot, const absl::Status& status);
  // The slots of all listed streams, except imports.
  std::set<int32_t> Slots();
  // Calls `event` on all streams of `key`, which continue to wait.
  void Tell(const ContributionKey& key, void (PushWaiter::*event)());

 private:
  struct Waiter {
    std::shared_ptr<WaiterGate> gate;
    bool sends = true;
  };
  struct Entry {
    std::vector<Waiter> waiters;

    std::vector<Waiter>::iterator Find(const WaiterGate* gate);
    bool NobodySends() const;
  };

  Mutex mutex_;
  std::map<ContributionKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
