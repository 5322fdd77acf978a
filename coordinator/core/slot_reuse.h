// Slots of islands that are gone for good, for new islands of a full run.
//
// A run has a slot for each island that ever joined, up to a limit. Beyond it a
// new island takes over the slot of one that left or was lost. Nothing that a
// shard or a plan names may then still be of the island before.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// An island may be taken for gone after this many lease durations.
inline constexpr int kGoneLeases = 10;

// Returns the slot that a new island may take over at `now`; nullopt without
// one. The slot's island left or was lost at least `absent_min` ago, no shard
// has an undecided contribution of it, and no seal or commit that a shard may
// still need names it. An operator has not removed or readmitted it.
//
// Prefers slots that no open round asks, then the slot whose island has been
// gone longest, then the lowest slot.
std::optional<int32_t> FindReusableSlot(const RunState& state,
                                        const Observations& observed,
                                        absl::Time now,
                                        absl::Duration absent_min);

}  // namespace atl::coordinator
