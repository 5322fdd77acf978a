#include "base/object_store/throttle.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

class ThrottleTest : public ::testing::Test {
 protected:
  // `late`: how late each timer fires.
  Waiting MakeWaiting(absl::Duration late = absl::ZeroDuration()) {
    return {.clock = &clock_,
            .sleep = [this, late](
                         absl::Duration nap) { clock_.Advance(nap + late); },
            .cancelled = [this] { return is_cancelled_; }};
  }

  FakeClock clock_;
  bool is_cancelled_ = false;
};

TEST_F(ThrottleTest, TheRateHoldsWithinFivePercent) {
  for (const int64_t rate : {100 << 10, 10 << 20, 32 << 20}) {
    for (const absl::Duration late :
         {absl::ZeroDuration(), absl::Milliseconds(5)}) {
      for (const int64_t piece : {int64_t{4} << 10, int64_t{256} << 10}) {
        Throttle throttle(rate, MakeWaiting(late));
        const absl::Time begin = clock_.Now();
        const int64_t bytes = rate * 60;
        for (int64_t sent = 0; sent < bytes; sent += piece) {
          ASSERT_TRUE(throttle.Take(piece).ok());
        }
        const double measured = static_cast<double>(bytes) /
                                absl::ToDoubleSeconds(clock_.Now() - begin);
        EXPECT_NEAR(measured / static_cast<double>(rate), 1, 0.05)
            << rate << " " << late << " " << piece;
      }
    }
  }
}

TEST_F(ThrottleTest, TimeInWhichTheStoreSendsIsNotLost) {
  // Each part of 8 pieces is sent at twice the rate after it is full.
  constexpr int64_t kRate = 8 << 20;
  constexpr int64_t kPiece = 256 << 10;
  Throttle throttle(kRate, MakeWaiting());
  const absl::Time begin = clock_.Now();
  for (int i = 1; i <= 1920; ++i) {  // 60 s.
    ASSERT_TRUE(throttle.Take(kPiece).ok());
    if (i % 8 == 0) clock_.Advance(absl::Seconds(4.0 * kPiece / kRate));
  }
  EXPECT_NEAR(absl::ToDoubleSeconds(clock_.Now() - begin), 60, 3);
}

TEST_F(ThrottleTest, WithoutABoundNothingWaits) {
  Throttle throttle(0, MakeWaiting());
  const absl::Time begin = clock_.Now();
  EXPECT_TRUE(throttle.Take(int64_t{1} << 40).ok());
  EXPECT_EQ(clock_.Now(), begin);
}

TEST_F(ThrottleTest, AWaitCanBeCancelled) {
  Throttle throttle(1 << 20, MakeWaiting());
  ASSERT_TRUE(throttle.Take(100 << 20).ok());
  is_cancelled_ = true;
  const absl::Time begin = clock_.Now();
  EXPECT_EQ(throttle.Take(1).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(clock_.Now(), begin);
}

}  // namespace
}  // namespace atl
