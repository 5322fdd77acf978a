#include "base/obs/log_pace.h"

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(LogPaceTest, ATextIsLoggedWhenItIsNewAndOnceAMinute) {
  LogPace pace;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_TRUE(pace.IsDue("a", start));
  EXPECT_FALSE(pace.IsDue("a", start + absl::Seconds(59)));
  EXPECT_TRUE(pace.IsDue("b", start + absl::Seconds(59)));
  EXPECT_FALSE(pace.IsDue("b", start + absl::Seconds(60)));
  EXPECT_TRUE(pace.IsDue("b", start + absl::Seconds(119)));
}

}  // namespace
}  // namespace atl
