// Memory for what waits at level ISLAND to be merged, of a whole server: who
// has how much of it, and who comes in next.
//
// Who holds (a contribution) may have as much as is left free, at most: one
// alone half of the bound, two a third each, and whoever comes next finds room.
// What has to be taken all the same, so that a round goes on, is taken beyond
// the bound. What is taken before it has come is reserved, and may never come:
// of that a holder has a sixteenth of what is left free, at most, or 4 MiB.
//
// Who finds no room takes a turn and waits. Those come in first whose
// contribution is merged first: by its index in its set, then by the order in
// which they came. Who does not fit is passed over, so that nobody's share
// keeps another out. Nobody waits for ever: the contribution of a set that is
// next needs no room, and all become next, one after the other.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.

#ifndef SERVER_CORE_BUDGET_BOOK_H_
#define SERVER_CORE_BUDGET_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace atl::server {

class BudgetBook {
 public:
  // What a holder may have reserved: this, and 1 / kReservedPart of what is
  // left free if that is more.
  static constexpr int64_t kReservedBytesMin = int64_t{4} << 20;
  static constexpr int64_t kReservedPart = 16;

  // How bytes are held.
  enum class Kind {
    kReserved,  // They have not come yet.
    kCome,
    kBeyond,  // They have come, and the bound did not allow it.
  };

  // At most `bytes_max` are taken, but for what is beyond.
  explicit BudgetBook(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // `bytes` (> 0) for `holder`; false, and nothing is taken, if the bound does
  // not allow it. Those who wait are not asked.
  bool Take(const void* holder, int64_t bytes);
  // The same, whatever the bound says.
  void TakeOverBudget(const void* holder, int64_t bytes);
  // `bytes` (>= 0) that were reserved have come.
  void Receive(const void* holder, int64_t bytes);
  // `bytes` (>= 0) that were taken are free again.
  void Give(const void* holder, int64_t bytes, Kind kind);
  bool Holds(const void* holder) const { return by_holder_.count(holder) > 0; }

  // Who waits, and for what.
  struct Ticket {
    const void* holder = nullptr;
    int64_t bytes = 0;          // > 0, at most kReservedBytesMin.
    const void* set = nullptr;  // Of contributions that are merged together.
    int index = 0;              // Of the holder, in the order of the merge.
  };
  // Numbers rise in the order in which turns are taken.
  void Wait(int64_t number, const Ticket& ticket);
  // It waits no more; nothing if it does not.
  void Leave(int64_t number);
  size_t waiting_count() const { return tickets_.size(); }

  // Somebody waits for what others have, and not only for what is reserved for
  // its own contribution to come.
  bool IsScarce() const;

  // Who comes in now, in order: reserves the bytes of each, who waits no more.
  std::vector<int64_t> LetIn();
  // Those of `set` up to `index`, which is next: they need no room.
  std::vector<int64_t> LetInNext(const void* set, int index);
  // Those of `holder`, which needs no room any more.
  std::vector<int64_t> LetInHolder(const void* holder);

  int64_t bytes() const { return bytes_; }
  // Of them, beyond the bound.
  int64_t over_budget_bytes() const { return over_budget_bytes_; }

 private:
  struct Own {
    int64_t bytes = 0;           // > 0.
    int64_t reserved_bytes = 0;  // Of them.
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

#endif  // SERVER_CORE_BUDGET_BOOK_H_
