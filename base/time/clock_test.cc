#include "base/time/clock.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(ClockTest, TellsTheTimeOfTheMachineAndNeverGoesBack) {
  const absl::Time now = SystemClock().Now();
  EXPECT_LT(absl::AbsDuration(absl::Now() - now), absl::Minutes(1));
  absl::Time before = now;
  for (int i = 0; i < 1000; ++i) {
    const absl::Time after = SystemClock().Now();
    ASSERT_LE(before, after);
    before = after;
  }
}

TEST(FakeClockTest, MovesOnlyWhenItIsMoved) {
  FakeClock fake(absl::UnixEpoch());
  const Clock& clock = fake;
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  fake.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(3));
  fake.Set(absl::UnixEpoch());
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
}

}  // namespace
}  // namespace atl
