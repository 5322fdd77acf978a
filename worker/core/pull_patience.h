// Bounds the newer commits during which a pull stays useful. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"

namespace atl::worker {

// Returns how many versions may be committed while an older one of `fragment`
// is being pulled. A pull continues as long as the island can train from its
// result, or can bring the result up to the newest version with the deltas that
// servers keep. Otherwise an island that needs longer than a round to pull a
// replica would never finish, and never join. An async island trains from what
// it pulled, so its limit is the staleness bound.
int64_t PullPatience(const v1::RunSpec& spec, const RunLayout& layout,
                     int32_t fragment);

}  // namespace atl::worker
