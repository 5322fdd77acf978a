#include "server/client/pacer.h"

#include <cstdint>

#include "absl/time/time.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

class PacerTest : public testing::Test {
 protected:
  FakeClock clock_;
  Pacer free_{0, clock_};
  Pacer capped_{1000, clock_};
};

TEST_F(PacerTest, WithoutACapNothingWaits) {
  EXPECT_FALSE(free_.is_capped());
  EXPECT_EQ(free_.Take(int64_t{1} << 40), absl::ZeroDuration());
  EXPECT_EQ(free_.Take(1), absl::ZeroDuration());
  free_.GiveBack(1);
  EXPECT_EQ(free_.BytesIn(absl::ZeroDuration(), 3, 7), 7);
}

TEST_F(PacerTest, WhoTakesWaitsForThoseBefore) {
  EXPECT_TRUE(capped_.is_capped());
  // The timers' allowance is available at once.
  EXPECT_EQ(capped_.Take(50), absl::ZeroDuration());
  EXPECT_EQ(capped_.Take(500), absl::ZeroDuration());
  EXPECT_EQ(capped_.Take(100), absl::Milliseconds(500));
  clock_.Advance(absl::Milliseconds(400));
  EXPECT_EQ(capped_.Take(1), absl::Milliseconds(200));
}

TEST_F(PacerTest, NobodyWaitsForWhatIsGivenBack) {
  capped_.Take(50);
  capped_.Take(500);
  capped_.GiveBack(300);
  EXPECT_EQ(capped_.Take(1), absl::Milliseconds(200));
}

TEST_F(PacerTest, SaysWhatMovesInASpanWithinBounds) {
  EXPECT_EQ(capped_.BytesIn(absl::Milliseconds(100), 10, 1000), 100);
  EXPECT_EQ(capped_.BytesIn(absl::Milliseconds(100), 200, 1000), 200);
  EXPECT_EQ(capped_.BytesIn(absl::Milliseconds(100), 10, 50), 50);
  EXPECT_EQ(capped_.BytesIn(absl::InfiniteDuration(), 10, 1000), 1000);
}

}  // namespace
}  // namespace atl::server
