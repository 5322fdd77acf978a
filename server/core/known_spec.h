// Decides whether this program supports a run's spec. Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::server {

// INVALID_ARGUMENT: a newer program made the run. UNKNOWN_MERGE_RULE,
// UNKNOWN_OUTER_OPTIMIZER, UNKNOWN_CODEC or UNKNOWN_DURABILITY with the number;
// else UNKNOWN_FEATURES. `program_version`: of this program, for the message.
absl::Status CheckKnownSpec(const v1::RunSpec& spec,
                            absl::string_view program_version);

}  // namespace atl::server
