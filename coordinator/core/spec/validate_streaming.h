// Checks a streaming schedule for CreateRun: overlap, blend, staggered
// fragments, eager updates (worker/DESIGN.md, Streaming). Pure. Thread-safe.

#ifndef COORDINATOR_CORE_SPEC_VALIDATE_STREAMING_H_
#define COORDINATOR_CORE_SPEC_VALIDATE_STREAMING_H_

#include <vector>

#include "atoll/v1/run.pb.h"
#include "coordinator/core/spec/errors.h"

namespace atl::coordinator {

// Appends what is wrong to `violations`.
void ValidateStreaming(const v1::RunSpec& spec,
                       std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_SPEC_VALIDATE_STREAMING_H_
