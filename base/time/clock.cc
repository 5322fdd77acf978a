#include "base/time/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace atl {
namespace {

absl::Duration SteadyTime() {
  return absl::FromChrono(
      std::chrono::steady_clock::now().time_since_epoch());
}

class RealClock : public Clock {
 public:
  absl::Time Now() const override { return zero_ + SteadyTime(); }

 private:
  const absl::Time zero_ = absl::Now() - SteadyTime();  // At steady time 0.
};

}  // namespace

const Clock& SystemClock() {
  static const RealClock* const clock = new RealClock;
  return *clock;
}

}  // namespace atl
