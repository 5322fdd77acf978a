#include "worker/planner/balanced_fragments.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace atl::worker {

std::vector<int32_t> BalancedFragments(const std::vector<int64_t>& sizes,
                                       int32_t fragment_count) {
  // Fills fragments up to `capacity` and returns their number. Every fragment
  // gets an item: if necessary the last items get one each.
  std::vector<int32_t> fragments(sizes.size());
  const auto fill = [&](int64_t capacity) {
    int32_t fragment = 0;
    int64_t filled = 0;
    for (size_t item = 0; item < sizes.size(); ++item) {
      const auto left = static_cast<int32_t>(sizes.size() - item);
      if (item > 0 && (filled + sizes[item] > capacity ||
                       left <= fragment_count - 1 - fragment)) {
        ++fragment;
        filled = 0;
      }
      fragments[item] = fragment;
      filled += sizes[item];
    }
    return fragment + 1;
  };
  int64_t low = *std::max_element(sizes.begin(), sizes.end());
  int64_t high = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fill(middle) <= fragment_count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  fill(low);
  return fragments;
}

}  // namespace atl::worker
