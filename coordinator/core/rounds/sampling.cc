#include "coordinator/core/rounds/sampling.h"

#include <algorithm>
#include <utility>

#include "base/codec/bits.h"

namespace atl::coordinator {

using codec::SplitMix64;

std::vector<int32_t> SampleSlots(const std::vector<int32_t>& slots,
                                 int64_t count, uint64_t seed, int64_t version,
                                 int64_t attempt) {
  if (static_cast<int64_t>(slots.size()) <= count) return slots;
  const uint64_t round =
      SplitMix64(SplitMix64(SplitMix64(seed) ^ static_cast<uint64_t>(version)) ^
                 static_cast<uint64_t>(attempt));
  std::vector<std::pair<uint64_t, int32_t>> keyed;
  keyed.reserve(slots.size());
  for (int32_t slot : slots) {
    keyed.emplace_back(SplitMix64(round ^ static_cast<uint64_t>(slot)), slot);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<int32_t> sample;
  for (int64_t i = 0; i < count; ++i) sample.push_back(keyed[i].second);
  std::sort(sample.begin(), sample.end());
  return sample;
}

}  // namespace atl::coordinator
