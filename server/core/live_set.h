// The contributions that a round of level ISLAND merges while they arrive.
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "server/core/contribution_key.h"

namespace atl::server {

struct LiveSet {
  // Counts the shard's sets. Results for an older set are discarded.
  int64_t id = 0;
  int32_t fragment = 0;
  int64_t version = 0;  // v; the merge makes v + 1.
  std::vector<ContributionKey> keys;  // In the order of the merge.
  std::vector<float> weights;  // One a key.

  // True if `seal` merges the same keys, with bit-equal weights, in this order.
  bool Merges(const v1::Seal& seal) const;
  // Ignores `id`.
  friend bool operator==(const LiveSet& a, const LiveSet& b) {
    return a.fragment == b.fragment && a.version == b.version &&
           a.keys == b.keys && a.weights == b.weights;
  }
};

}  // namespace atl::server
