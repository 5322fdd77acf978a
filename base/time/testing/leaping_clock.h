// A test that links this sees the machine's clock jump an hour ahead at each
// reading. A deadline computed from it has passed at the next reading.
// SystemClock() must hide the jumps.
//
// For tests only. Replaces the C library's clock_gettime.

#pragma once

#include "absl/time/time.h"

namespace atl {

// The jump at each reading.
inline constexpr absl::Duration kClockLeap = absl::Hours(1);

}  // namespace atl
