// How long a pull is of use while newer versions are committed.
//
// Pure. Thread-safe.

#ifndef WORKER_CORE_PULL_PATIENCE_H_
#define WORKER_CORE_PULL_PATIENCE_H_

#include <cstdint>

#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"

namespace atl::worker {

// Versions that may be committed while an older one of `fragment` is pulled: a
// pull goes on as long as what it brings can be trained from, or brought up to
// the newest by what servers keep of the way there. Else an island that takes
// longer than a round for the whole view never has one, and never joins. An
// async island trains from what it has pulled, so that it has to be fresh.
int64_t PullPatience(const v1::RunSpec& spec, const RunLayout& layout,
                     int32_t fragment);

}  // namespace atl::worker

#endif  // WORKER_CORE_PULL_PATIENCE_H_
