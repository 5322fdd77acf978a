#include "coordinator/core/state/call_rate.h"

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(CallRateTest, AllowsABurstAndThenTheRate) {
  CallRate rate(absl::Seconds(2), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rate.Take(kStart), absl::ZeroDuration());
  }
  EXPECT_EQ(rate.Take(kStart), absl::Seconds(2));
  EXPECT_EQ(rate.Take(kStart + absl::Seconds(1)), absl::Seconds(1));
  EXPECT_EQ(rate.Take(kStart + absl::Seconds(2)), absl::ZeroDuration());
  EXPECT_EQ(rate.Take(kStart + absl::Seconds(2)), absl::Seconds(2));
}

TEST(CallRateTest, ARefusedCallMakesNoWaitLonger) {
  CallRate rate(absl::Seconds(2), 1);
  EXPECT_EQ(rate.Take(kStart), absl::ZeroDuration());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(rate.Take(kStart), absl::Seconds(2));
  }
}

TEST(CallRateTest, IdleTimeGivesNoMoreThanTheBurst) {
  CallRate rate(absl::Seconds(2), 2);
  EXPECT_EQ(rate.Take(kStart), absl::ZeroDuration());
  const absl::Time later = kStart + absl::Hours(1);
  EXPECT_EQ(rate.Take(later), absl::ZeroDuration());
  EXPECT_EQ(rate.Take(later), absl::ZeroDuration());
  EXPECT_EQ(rate.Take(later), absl::Seconds(2));
}

}  // namespace
}  // namespace atl::coordinator
