// The clock seam: code that reads the time takes a Clock, so tests can set it.

#pragma once

#include "absl/time/time.h"

namespace atl {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's clock at the first call, advanced by the monotonic clock. So
// setting the machine's clock neither ends nor extends a lease. Never
// destroyed.
const Clock& SystemClock();

}  // namespace atl
