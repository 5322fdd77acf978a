// Bytes of contributions that wait at level ISLAND to be merged, of a whole
// server, and their bound.
//
// server/core/budget_book.h has the rules: who may have how much, what is taken
// beyond the bound, and who of those that wait for room comes in next. What
// nobody goes on with for now is held until somebody finds no room.
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

// A stream has no room for the blocks that it brings: RESOURCE_EXHAUSTED.
absl::Status NoBudgetToWait();

// A set that is gathered, as far as it can make room.
class FoldingSet {
 public:
  virtual ~FoldingSet() = default;
  // Folds what waits and can be, for there is no room for more to wait. True if
  // anything was.
  virtual bool FoldWaiting() = 0;
};

class ReceiveBudget : public std::enable_shared_from_this<ReceiveBudget> {
 public:
  // Bytes that are held while it lives.
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

    // The bound did not allow it.
    bool is_over_budget() const {
      return kind_ == BudgetBook::Kind::kOverBudget;
    }
    int64_t bytes() const { return bytes_; }
    // Parts `bytes` of it, which are held for themselves.
    Hold Split(int64_t bytes) {
      bytes_ -= bytes;
      return Hold(held_, holder_, bytes, kind_);
    }
    // The same of what was reserved, of which they have come.
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

  // Somebody who waits for room, and leaves when this ends.
  class Ticket {
   public:
    Ticket(std::shared_ptr<ReceiveBudget> held, int64_t number)
        : held_(std::move(held)), number_(number) {}
    ~Ticket() { held_->Leave(number_); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

    int64_t number() const { return number_; }  // > 0, and of no other.
    // True once it has been let in.
    bool is_in() const { return held_->IsIn(number_); }
    // The room for which it has waited, reserved, once; none if it was let in
    // without, because its contribution is next. Requires: is_in().
    std::optional<Hold> TakeBudget() { return held_->TakeBudget(number_); }

   private:
    const std::shared_ptr<ReceiveBudget> held_;
    const int64_t number_;
  };
  // Has a task carried out on a thread that holds no lock; in order.
  using Post = std::function<void(std::function<void()>)>;

  // At most `bytes_max` wait, and at most `slice_bytes_max` of them in the
  // slices that gRPC received them in: it counts these, and ends calls when
  // there are too many. Those who wait for room hear of it by `post`, which
  // must work for as long as anybody waits.
  ReceiveBudget(int64_t bytes_max, int64_t slice_bytes_max, Post post = nullptr)
      : slice_bytes_max_(slice_bytes_max),
        post_(std::move(post)),
        book_(bytes_max) {}

  // `bytes` (> 0) for `holder`; none if the bound does not allow it.
  // What is abandoned makes room for it: to be called with no lock held.
  std::optional<Hold> Take(const void* holder, int64_t bytes);
  // The same, whatever the bound says.
  Hold TakeOverBudget(const void* holder, int64_t bytes);

  // Waits for room. It may be in when this returns; if it is not, it is let in
  // when there is some: then `gate` is called (OnBudget). If others have what
  // it waits for, room is made of what can be.
  std::unique_ptr<Ticket> Wait(const BudgetBook::Ticket& ticket,
                               std::shared_ptr<WaiterGate> gate);
  bool AnyoneWaits() const;
  // BudgetBook::IsScarce.
  bool IsScarce() const;
  // Contributions of `set` up to `index` need no room any more.
  void LetInNext(const void* set, int index);
  // `holder` needs no room any more: it has everything.
  void LetInHolder(const void* holder);
  // Has `set` fold what it can, on the thread of `post`, whenever somebody
  // begins to wait for what others have; for as long as there is such a set.
  void AddSet(std::weak_ptr<FoldingSet> set);

  // Nobody goes on with what `holder` holds: `give_up`, called once, from any
  // thread, when somebody finds no room, lets go of it if that is still so.
  // Nothing, if it holds nothing.
  void Abandon(const void* holder, std::function<void()> give_up);
  // Somebody has found no room: has what is abandoned given up. False if
  // nothing was. To be called with no lock held.
  bool GiveUpAbandoned();

  // Of what is held, in slices. False, and nothing is added, if there would be
  // too many.
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
  // Of them, beyond the bound.
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
  // What is posted once the lock is free.
  struct Due {
    std::vector<std::shared_ptr<WaiterGate>> gates;  // Of who was let in.
    bool frees_budget = false;
  };
  // Lets in who can be. Those of `numbers` are in already, and need no room.
  Due LetIn(const std::vector<int64_t>& numbers = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has room made when it becomes scarce.
  void LookForScarcity(Due& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForRoom(Due& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostAll(Due due);
  // Has every set folded, and what is abandoned given up.
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
  // MakeRoom is posted, and has not begun.
  bool frees_budget_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t slice_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::server
