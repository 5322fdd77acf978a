// A test that links this sees the machine's clock jump an hour ahead at each
// reading. A deadline computed from it has passed at the next reading.
// SystemClock() must hide the jumps.
//
// For tests only. Replaces the C library's clock_gettime.

#ifndef BASE_TIME_TESTING_LEAPING_CLOCK_H_
#define BASE_TIME_TESTING_LEAPING_CLOCK_H_

#include "absl/time/time.h"

namespace atl {

// The jump at each reading.
inline constexpr absl::Duration kClockLeap = absl::Hours(1);

}  // namespace atl

#endif  // BASE_TIME_TESTING_LEAPING_CLOCK_H_
