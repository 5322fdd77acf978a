#include "worker/core/pull_patience.h"

#include <algorithm>

#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/run_timing.h"

namespace atl::worker {

int64_t PullPatience(const v1::RunSpec& spec, const RunLayout& layout,
                     int32_t fragment) {
  const int64_t staleness = spec.schedule().max_staleness();
  if (!HasReplica(spec) || IsAsync(spec.schedule())) return staleness;
  const EncodedLayout delta(layout, fragment, DownCodec(spec));
  const int64_t full_bytes = layout.fragment_element_count(fragment) *
                             static_cast<int64_t>(sizeof(float));
  return std::max(staleness, DeltasKept(full_bytes, delta.byte_count()));
}

}  // namespace atl::worker
