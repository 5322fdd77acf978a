// Checks a streaming schedule for CreateRun: overlap, blend, staggered
// fragments, eager updates (worker/DESIGN.md, Streaming). Pure. Thread-safe.

#pragma once

#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

// Appends what is wrong to `violations`.
void ValidateStreaming(const v1::RunSpec& spec,
                       std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator
