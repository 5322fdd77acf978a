// Bounds the bytes of contributions that wait for live merges, over all runs of
// a server.
//
// server/core/budget_book.h has the rules: the share of each holder, what may
// be taken over budget, and the order of waiting streams. This class adds the
// lock, the calls to streams, and the ways to free memory.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync/mutex.h"
#include "server/core/budget_book.h"
#include "server/waiters/push_waiters.h"

namespace atl::server {

// RESOURCE_EXHAUSTED, QUEUE_FULL: no budget for the blocks of a stream.
absl::Status NoBudgetToWait();

// A live merge, as far as it can free memory.
class FoldingSet {
 public:
  virtual ~FoldingSet() = default;
  // Folds all waiting cells that it can. True if it folded any.
  virtual bool FoldWaiting() = 0;
};

class ReceiveBudget : public std::enable_shared_from_this<ReceiveBudget> {
 public:
  // Holds bytes of the budget while it lives.
  class Hold {
   public:
    Hold(Hold&& other) noexcept
        : held_(std::move(other.held_)),
          holder_(other.holder_),
          bytes_(other.bytes_),
          kind_(other.kind_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(held_, other.held_);
      std::swap(holder_, other.holder_);
      std::swap(bytes_, other.bytes_);
      std::swap(kind_, other.kind_);
      return *this;
    }
    ~Hold() {
      if (held_ != nullptr) held_->Give(holder_, bytes_, kind_);
    }

    // True if the bound did not allow it.
    bool is_over_budget() const {
      return kind_ == BudgetBook::Kind::kOverBudget;
    }
    int64_t bytes() const { return bytes_; }
    // Moves `bytes` (at most bytes()) to a Hold of their own.
    Hold Split(int64_t bytes) {
      bytes_ -= bytes;
      return Hold(held_, holder_, bytes, kind_);
    }
    // The same for `bytes` of a reservation, which have now arrived.
    Hold Receive(int64_t bytes) {
      bytes_ -= bytes;
      held_->Receive(holder_, bytes);
      return Hold(held_, holder_, bytes, BudgetBook::Kind::kCome);
    }

   private:
    friend class ReceiveBudget;
    Hold(std::shared_ptr<ReceiveBudget> held, const void* holder, int64_t bytes,
         BudgetBook::Kind kind)
        : held_(std::move(held)), holder_(holder), bytes_(bytes), kind_(kind) {}

    std::shared_ptr<ReceiveBudget> held_;
    const void* holder_;
    int64_t bytes_;
    BudgetBook::Kind kind_;
  };

  // A place in the queue for budget; leaves the queue when it is destroyed.
  class Ticket {
   public:
    Ticket(std::shared_ptr<ReceiveBudget> held, int64_t number)
        : held_(std::move(held)), number_(number) {}
    ~Ticket() { held_->Leave(number_); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

    int64_t number() const { return number_; }  // > 0, unique.
    // True once it was let in.
    bool is_in() const { return held_->IsIn(number_); }
    // Returns its reservation, once. Empty if it was let in without one,
    // because its contribution is next or complete. Requires: is_in().
    std::optional<Hold> TakeBudget() { return held_->TakeBudget(number_); }

   private:
    const std::shared_ptr<ReceiveBudget> held_;
    const int64_t number_;
  };
  // Runs tasks in order on a thread that holds no lock.
  using Post = std::function<void(std::function<void()>)>;

  // At most `bytes_max` wait; at most `slice_bytes_max` of them stay in the
  // slices that gRPC received, because gRPC ends calls when its memory quota is
  // used up. `post` calls waiting streams; it must work while any stream waits.
  // It may be null if Wait is never called.
  ReceiveBudget(int64_t bytes_max, int64_t slice_bytes_max, Post post = nullptr)
      : slice_bytes_max_(slice_bytes_max),
        post_(std::move(post)),
        book_(bytes_max) {}

  // Takes `bytes` (> 0) for `holder`; empty if the bound does not allow it,
  // even after abandoned bytes are given up. Call it with no lock held.
  std::optional<Hold> Take(const void* holder, int64_t bytes);
  // The same without regard to the bound.
  Hold TakeOverBudget(const void* holder, int64_t bytes);

  // Waits for budget. The ticket may be in when Wait returns; otherwise `gate`
  // is called (OnRoom) when it is let in. If other holders have the memory,
  // starts to free what can be freed.
  std::unique_ptr<Ticket> Wait(const BudgetBook::Ticket& ticket,
                               std::shared_ptr<WaiterGate> gate);
  bool AnyoneWaits() const;
  // BudgetBook::IsScarce.
  bool IsScarce() const;
  // Contributions of `set` up to `index` need no budget from now on.
  void LetInNext(const void* set, int index);
  // `holder` has all its blocks and needs no budget from now on.
  void LetInHolder(const void* holder);
  // While `set` lives: it folds what it can, on the thread of `post`, whenever
  // a ticket begins to wait for memory of other holders.
  void AddSet(std::weak_ptr<FoldingSet> set);

  // No stream continues with what `holder` holds. When memory is needed,
  // `give_up` is called, once and from any thread; it must free these bytes if
  // they are still abandoned. Does nothing if `holder` holds nothing.
  void Abandon(const void* holder, std::function<void()> give_up);
  // Gives up all abandoned bytes; returns false if it had none. Call it with no
  // lock held.
  bool GiveUpAbandoned();

  // Counts held bytes that stay in gRPC's slices. False, and nothing is added,
  // if they would exceed the bound.
  bool AddSliceBytes(int64_t bytes) {
    MutexLock lock(&mutex_);
    if (slice_bytes_ + bytes > slice_bytes_max_) return false;
    slice_bytes_ += bytes;
    return true;
  }
  void RemoveSliceBytes(int64_t bytes) {
    MutexLock lock(&mutex_);
    slice_bytes_ -= bytes;
  }

  int64_t bytes() const {
    MutexLock lock(&mutex_);
    return book_.bytes();
  }
  // The part of bytes() that was taken over budget.
  int64_t over_budget_bytes() const {
    MutexLock lock(&mutex_);
    return book_.over_budget_bytes();
  }

 private:
  struct Waiter {
    std::shared_ptr<WaiterGate> gate;
    BudgetBook::Ticket ticket;
    bool is_in = false;
    std::optional<Hold> hold;
  };

  std::optional<Hold> TakeIfFree(const void* holder, int64_t bytes);
  void Receive(const void* holder, int64_t bytes);
  void Give(const void* holder, int64_t bytes, BudgetBook::Kind kind);
  // Work to post after the lock is released.
  struct Due {
    std::vector<std::shared_ptr<WaiterGate>> gates;  // Waiters let in.
    bool frees_budget = false;
  };
  // Lets tickets in: `numbers`, which need no budget, and all that fit.
  Due LetIn(const std::vector<int64_t>& numbers = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks for memory when the budget becomes scarce.
  void LookForScarcity(Due& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForRoom(Due& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostAll(Due due);
  // Folds all sets, and has abandoned bytes given up.
  void MakeRoom();
  void Leave(int64_t number);
  bool IsIn(int64_t number) const;
  std::optional<Hold> TakeBudget(int64_t number);

  const int64_t slice_bytes_max_;
  const Post post_;
  mutable Mutex mutex_;
  BudgetBook book_ ABSL_GUARDED_BY(mutex_);
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, std::function<void()>> abandoned_
      ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<FoldingSet>> sets_ ABSL_GUARDED_BY(mutex_);
  bool is_scarce_ ABSL_GUARDED_BY(mutex_) = false;  // As book_ says.
  // MakeRoom is posted and has not begun.
  bool frees_budget_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t slice_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::server
