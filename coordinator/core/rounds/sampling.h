// Client sampling: which of the ready islands a round asks.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_SAMPLING_H_
#define COORDINATOR_CORE_ROUNDS_SAMPLING_H_

#include <cstdint>
#include <vector>

namespace atl::coordinator {

// The `count` slots of `slots` (sorted) with the smallest keys, a key being a
// 64-bit hash of (seed, version, attempt, slot). The result is sorted, depends
// on nothing else, and every set of `count` slots is as likely as any other.
// All of `slots` if it has no more than `count`.
std::vector<int32_t> SampleSlots(const std::vector<int32_t>& slots,
                                 int64_t count, uint64_t seed, int64_t version,
                                 int64_t attempt);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_SAMPLING_H_
