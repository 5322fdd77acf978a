// The streams that wait for contributions to be whole.
//
// Several streams may carry one contribution. Each learns when it is stored or
// refused, and, once nobody sends any more, that blocks are still missing.
//
// Thread-safe. Calls a stream with no lock of its own held but the stream's
// gate: a stream that has closed its gate is never called again.

#ifndef SERVER_WAITERS_PUSH_WAITERS_H_
#define SERVER_WAITERS_PUSH_WAITERS_H_

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

// Who waits. OnSettled is called at most once a key.
class PushWaiter {
 public:
  virtual ~PushWaiter() = default;
  // OK: stored. Else how the stream has to end.
  virtual void OnSettled(const absl::Status& status) = 0;
  // The peer is too slow: the stream ends with `status`, or, if the peer takes
  // not even that, without.
  virtual void OnTooSlow(const absl::Status& status) = 0;
  // What the stream has is needed by others: it ends with `status` as soon as
  // it can. OnTooSlow follows if it does not.
  virtual void OnDisplaced(const absl::Status& status) = 0;
  // Level ISLAND. The contribution's blocks can be taken in now.
  virtual void OnLiveMerge() {}
  // Level ISLAND. What was taken in is of no use: it has to be pushed again.
  virtual void OnRestart() {}
  // The block that was not taken at once has been.
  virtual void OnTaken() {}
  // Level ISLAND. There is room for what it brings next.
  virtual void OnRoom() {}
};

// Stands between a waiter and those who call it: it may end at any time.
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
  // Calls one of the others.
  void Call(void (PushWaiter::*event)()) {
    MutexLock lock(&mutex_);
    if (waiter_ != nullptr) (waiter_->*event)();
  }
  // The waiter is never called after it returns.
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
  // Streams of level ISLAND of one slot and fragment: as many as 64 processes
  // have that push over four each. They wait as long as a round does, so this,
  // and not their moving on, is what bounds them.
  static constexpr int kWaitingMax = 256;

  // A stream that sends blocks of `key`.
  void Add(const ContributionKey& key, std::shared_ptr<WaiterGate> gate);
  // The same at level ISLAND, where they are bounded: of kWaitingMax one that
  // sends no more is told to call again, which costs it nothing but that it
  // hears of the outcome later. False, and nothing is added, if all send.
  bool AddBounded(const ContributionKey& key, std::shared_ptr<WaiterGate> gate);
  // It sends no more, but waits on. True if it still waited, and nobody who
  // waits with it sends any more.
  //
  // A stream that was settled counts no more: under its key there may be
  // another contribution by then, with streams of its own.
  bool EndSending(const ContributionKey& key, const WaiterGate* gate);
  // It is gone. Returns as EndSending.
  bool Remove(const ContributionKey& key, const WaiterGate* gate);
  // Calls all that wait for `key`, and forgets them.
  void Settle(const ContributionKey& key, const absl::Status& status);
  // The same for all contributions of `slot`, imports aside.
  void SettleSlot(int32_t slot, const absl::Status& status);
  // Whose contributions streams are there for, imports aside.
  std::set<int32_t> Slots();
  // Tells all that wait for `key`, who wait on.
  void Tell(const ContributionKey& key, void (PushWaiter::*event)());

 private:
  struct Waiter {
    std::shared_ptr<WaiterGate> gate;
    bool sends = true;
  };
  struct Entry {
    std::vector<Waiter> waiters;

    // waiters.end() for none.
    std::vector<Waiter>::iterator Find(const WaiterGate* gate);
    bool NobodySends() const;
  };

  Mutex mutex_;
  std::map<ContributionKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_WAITERS_PUSH_WAITERS_H_
