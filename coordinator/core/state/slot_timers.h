// Times by slot, with the earliest at hand: setting one costs O(log n).
//
// Pure. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace atl::coordinator {

class SlotTimers {
 public:
  // InfiniteFuture, the time of a slot that was never set, takes it out.
  // Requires: slot >= 0.
  void Set(int32_t slot, absl::Time time) {
    if (static_cast<size_t>(slot) >= times_.size()) {
      times_.resize(slot + 1, absl::InfiniteFuture());
    }
    absl::Time& known = times_[slot];
    if (known == time) return;
    if (known != absl::InfiniteFuture()) order_.erase({known, slot});
    if (time != absl::InfiniteFuture()) order_.emplace(time, slot);
    known = time;
  }

  absl::Time Find(int32_t slot) const {
    return static_cast<size_t>(slot) < times_.size() ? times_[slot]
                                                     : absl::InfiniteFuture();
  }

  absl::Time Earliest() const {
    return order_.empty() ? absl::InfiniteFuture() : order_.begin()->first;
  }

  // Slots whose time is `due` or earlier, in the order of slots.
  std::vector<int32_t> ListDue(absl::Time due) const {
    std::vector<int32_t> slots;
    for (const auto& [time, slot] : order_) {
      if (time > due) break;
      slots.push_back(slot);
    }
    std::sort(slots.begin(), slots.end());
    return slots;
  }

  // Moves every time that is set. O(n).
  void Delay(absl::Duration duration) {
    std::set<std::pair<absl::Time, int32_t>> moved;
    for (const auto& [time, slot] : order_) {
      times_[slot] = time + duration;
      moved.emplace_hint(moved.end(), time + duration, slot);
    }
    order_ = std::move(moved);
  }

  size_t size() const { return order_.size(); }

 private:
  std::vector<absl::Time> times_;                     // By slot.
  std::set<std::pair<absl::Time, int32_t>> order_;  // Without InfiniteFuture.
};

}  // namespace atl::coordinator
