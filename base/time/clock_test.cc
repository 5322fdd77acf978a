#include "base/time/clock.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/time/fake_clock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(ClockTest, TellsTheTimeOfTheMachine) {
  const absl::Time before = absl::Now();
  const absl::Time now = SystemClock().Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, absl::Now());
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
