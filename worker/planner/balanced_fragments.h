// Cuts a list into consecutive parts of similar sizes. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

namespace atl::worker {

// The fragment of each item, rising from 0 to fragment_count - 1: adjacent
// items, at least one a fragment, with the smallest possible largest fragment.
// `sizes` are the items' sizes, each >= 0; their sum must not overflow.
// Requires: 1 <= fragment_count <= sizes.size().
std::vector<int32_t> BalancedFragments(const std::vector<int64_t>& sizes,
                                       int32_t fragment_count);

}  // namespace atl::worker
