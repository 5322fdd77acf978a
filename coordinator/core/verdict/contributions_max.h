// Limits a round's contributions, to keep reports small. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"

namespace atl::coordinator {

// Limit of one shard's statistics of all fragments.
inline constexpr int64_t kStatisticsBytesMax = int64_t{2} << 20;

// The largest count within that limit, >= 1; INT64_MAX if the merge rule needs
// no verdict. `layout` is the one of `spec`.
int64_t ContributionsMax(const RunLayout& layout, const v1::RunSpec& spec);

}  // namespace atl::coordinator
