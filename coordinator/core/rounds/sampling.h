// Client sampling: which of the ready islands a round asks. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

namespace atl::coordinator {

// The `count` slots of `slots` (sorted) with the smallest keys. A key is a
// 64-bit hash of (seed, version, attempt, slot). The result is sorted and
// depends on nothing else; every set of `count` slots is equally likely.
// Returns all of `slots` if there are at most `count`.
std::vector<int32_t> SampleSlots(const std::vector<int32_t>& slots,
                                 int64_t count, uint64_t seed, int64_t version,
                                 int64_t attempt);

}  // namespace atl::coordinator
