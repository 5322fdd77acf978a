// Named places where a test can kill the process. Thread-safe.
//
// A program passes its --failpoint flag to Arm once, in main, and calls
// Hit("coordinator.seal.before") at each named place. At the Nth hit of the
// armed place the process kills itself with SIGKILL. As in a power cut, no
// destructor runs. If nothing is armed, Hit is one atomic load.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl::failpoint {

// Arms one place: "NAME" or "NAME@N" (the Nth hit, N >= 1). An empty `spec`
// arms nothing. Call it at most once, before threads start.
// INVALID_ARGUMENT: the spec is malformed; nothing is armed.
absl::Status Arm(absl::string_view spec);

// Marks a place. Does not return at the armed hit.
void Hit(absl::string_view name);

}  // namespace atl::failpoint
