// The books of a server's receive budget: memory for blocks that wait to be
// merged at level ISLAND. They record what each holder (a contribution) has,
// and which waiting stream is admitted next.
//
// A holder may have at most as much as is left free: one holder alone gets half
// of the budget, two get a third each, so a newcomer finds memory. Bytes that a
// round needs to progress are taken over budget. Bytes taken before they arrive
// are reserved and may never arrive: a holder's are at most a sixteenth of what
// is left free, or 4 MiB if that is more.
//
// A stream that does not fit takes a ticket and waits. Tickets are admitted in
// the order of the merge: by the contribution's index in its set, then by
// arrival. One that does not fit is skipped, so it blocks no others. Every wait
// ends: the next contribution of a set needs no budget, and each becomes the
// next in turn. Pure: no thread, no clock, no I/O. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace atl::server {

class BudgetBook {
 public:
  // A holder's most reserved bytes: this, or 1 / kReservedPart of what is free.
  static constexpr int64_t kReservedBytesMin = int64_t{4} << 20;
  static constexpr int64_t kReservedPart = 16;

  enum class Kind {
    kReserved,  // Taken before they arrived.
    kCome,
    kOverBudget,  // Arrived, and exceed the budget.
  };

  // `bytes_max` bounds all bytes except those over budget.
  explicit BudgetBook(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes `bytes` (> 0), ahead of tickets. False, and no change: they do not
  // fit.
  bool Take(const void* holder, int64_t bytes);
  void TakeOverBudget(const void* holder, int64_t bytes);
  // `bytes` (>= 0) of the reserved bytes have arrived.
  void Receive(const void* holder, int64_t bytes);
  // Returns `bytes` (>= 0) that were taken.
  void Give(const void* holder, int64_t bytes, Kind kind);
  bool Holds(const void* holder) const { return by_holder_.count(holder) > 0; }

  struct Ticket {
    const void* holder = nullptr;
    int64_t bytes = 0;          // > 0, at most kReservedBytesMin.
    const void* set = nullptr;  // Contributions merged together.
    int index = 0;              // The holder's, in merge order.
  };
  // `number` grows from one ticket to the next.
  void Wait(int64_t number, const Ticket& ticket);
  // Removes a ticket; no effect if it is not waiting.
  void Leave(int64_t number);
  size_t waiting_count() const { return tickets_.size(); }

  // True if a ticket does not fit the budget, whatever its reservation limit.
  bool IsScarce() const;

  // Admits the tickets that fit, in order: removes them, reserves their bytes.
  std::vector<int64_t> LetIn();
  // Admits without budget the tickets of `set` up to `index`, its next holder.
  std::vector<int64_t> LetInNext(const void* set, int index);
  // Admits the tickets of `holder`, which no longer needs budget.
  std::vector<int64_t> LetInHolder(const void* holder);

  int64_t bytes() const { return bytes_; }
  int64_t over_budget_bytes() const { return over_budget_bytes_; }

 private:
  struct Own {
    int64_t bytes = 0;           // > 0.
    int64_t reserved_bytes = 0;  // Included in `bytes`.
  };

  Own FindOwn(const void* holder) const;
  bool Fits(const void* holder, int64_t bytes) const;
  void Count(const void* holder, int64_t bytes);

  int64_t bytes_max_;
  int64_t bytes_ = 0;
  int64_t over_budget_bytes_ = 0;
  std::map<const void*, Own> by_holder_;
  std::map<int64_t, Ticket> tickets_;
  std::set<std::pair<int, int64_t>> order_;  // (index, number) of each.
};

}  // namespace atl::server
