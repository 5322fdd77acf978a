#include "server/client/idle_watch.h"

#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

TEST(IdleWatchTest, AWholeTransferMayTakeAsLongAsItMoves) {
  const absl::Time start = absl::UnixEpoch();
  IdleWatch watch(30 * kSecond, start);
  for (int i = 1; i <= 1000; ++i) {
    EXPECT_FALSE(watch.IsIdle(i, start + i * 29 * kSecond)) << i;
  }
}

TEST(IdleWatchTest, IsIdleOnceNothingHasMovedForTheBound) {
  const absl::Time start = absl::UnixEpoch();
  IdleWatch watch(30 * kSecond, start);
  EXPECT_FALSE(watch.IsIdle(0, start + 29 * kSecond));
  EXPECT_TRUE(watch.IsIdle(0, start + 30 * kSecond));

  IdleWatch moved(30 * kSecond, start);
  EXPECT_FALSE(moved.IsIdle(7, start + 10 * kSecond));
  EXPECT_FALSE(moved.IsIdle(7, start + 39 * kSecond));
  EXPECT_TRUE(moved.IsIdle(7, start + 40 * kSecond));
}

TEST(IdleWatchTest, AnInfiniteBoundIsNone) {
  IdleWatch watch(absl::InfiniteDuration(), absl::UnixEpoch());
  EXPECT_FALSE(watch.IsIdle(0, absl::UnixEpoch() + absl::Hours(1000000)));
}

}  // namespace
}  // namespace atl::server
