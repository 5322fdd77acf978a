// Test helper: rounds as the coordinator tells them to an island.

#pragma once

#include <algorithm>
#include <cstdint>

#include "atoll/v1/plan.pb.h"

namespace atl::worker {

// Keeps of the slots of `open` only the receiver's, if present, and replaces
// the others by the summary that an island gets.
inline void KeepOwnSlot(int32_t slot, v1::OpenRound& open) {
  v1::OpenRound told = open;
  told.clear_slots();
  told.set_slot_count(open.slots_size());
  told.set_step_count_sum(0);
  for (int i = 0; i < open.slots_size(); ++i) {
    told.set_step_count_sum(told.step_count_sum() +
                            std::max<int64_t>(1, open.slots(i).step_count()));
    if (open.slots(i).slot() != slot) continue;
    told.set_slot_index(i);
    *told.add_slots() = open.slots(i);
  }
  open = told;
}

}  // namespace atl::worker
