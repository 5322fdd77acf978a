// Named places where a test may kill the process.
//
// A program passes its --failpoint flag to Arm once, in main, and calls
// Hit("coordinator.seal.before") at each named place. When the armed place is
// hit for the Nth time the process dies of SIGKILL, as a power cut would have
// it: no destructor runs. With nothing armed, Hit is one relaxed load.
//
// Thread-safe.

#ifndef BASE_FAILPOINT_FAILPOINT_H_
#define BASE_FAILPOINT_FAILPOINT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl::failpoint {

// Arms one place: "NAME" or "NAME@N" (the Nth hit, N >= 1). An empty `spec`
// arms nothing. To be called before threads start, at most once.
//
// INVALID_ARGUMENT: the spec is malformed; nothing is armed.
absl::Status Arm(absl::string_view spec);

// Marks a place. Does not return if this is the armed hit.
void Hit(absl::string_view name);

// How often the armed place was hit; for tests of this library.
int HitCount();

}  // namespace atl::failpoint

#endif  // BASE_FAILPOINT_FAILPOINT_H_
