// CreateRun's check of external models, which only their trainers know. Pure.
// Thread-safe.

#pragma once

#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

// For an external model, appends the faults of `spec.model`, `spec.inner`,
// `spec.data` and `spec.evaluation` to `violations`. For another model, appends
// a violation if the data is external.
void CheckExternal(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator
