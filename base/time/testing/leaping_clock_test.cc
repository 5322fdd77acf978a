#include "base/time/testing/leaping_clock.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(LeapingClockTest, SystemClockGoesOnWhateverTheMachinesIsSetTo) {
  const absl::Time begin = SystemClock().Now();
  const absl::Time machine_begin = absl::Now();
  for (int i = 1; i < 100; ++i) {
    EXPECT_GE(absl::Now() - machine_begin, i * kClockLeap);
    EXPECT_LT(SystemClock().Now() - begin, kClockLeap);
  }
}

}  // namespace
}  // namespace atl
