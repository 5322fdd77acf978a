// CreateRun's check of the exchange of tensors. Pure. Thread-safe.

#pragma once

#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

// Appends what is wrong with `spec.exchange`, alone and together with the rest
// of `spec`, to `violations`.
void CheckExchange(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator
