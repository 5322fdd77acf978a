// CreateRun's check of a run whose model only its trainer knows. Pure.
// Thread-safe.

#pragma once

#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

// Appends what is wrong with `spec.model`, `spec.inner`, `spec.data` and
// `spec.evaluation` of an external model to `violations`. Of other models:
// appends a violation if the data is external.
void CheckExternal(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator
