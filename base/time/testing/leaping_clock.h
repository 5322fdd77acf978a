// In a test that links this, somebody sets the machine's clock an hour ahead
// each time that it is read: whoever takes a deadline from it finds it passed
// at the next look. SystemClock() has to hide that.
//
// For tests only. It takes the place of the C library's clock_gettime.

#ifndef BASE_TIME_TESTING_LEAPING_CLOCK_H_
#define BASE_TIME_TESTING_LEAPING_CLOCK_H_

#include "absl/time/time.h"

namespace atl {

// How far the clock is set ahead with each reading.
inline constexpr absl::Duration kClockLeap = absl::Hours(1);

}  // namespace atl

#endif  // BASE_TIME_TESTING_LEAPING_CLOCK_H_
