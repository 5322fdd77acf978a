// The clock seam: what reads the time takes a Clock, so that a test gives it.

#ifndef BASE_TIME_CLOCK_H_
#define BASE_TIME_CLOCK_H_

#include "absl/time/time.h"

namespace atl {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's clock as it was when the process first asked, and from there on
// by the one that never jumps: whoever sets the machine's clock ends no lease
// and stretches none. Never freed.
const Clock& SystemClock();

}  // namespace atl

#endif  // BASE_TIME_CLOCK_H_
