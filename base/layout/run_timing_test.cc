#include "base/layout/run_timing.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(RunTimingTest, AnAnchorIsFreshOrNotWhateverNumberAPeerSays) {
  v1::ScheduleSpec schedule;
  for (const int staleness : {0, 2}) {
    schedule.set_max_staleness(staleness);
    for (const int64_t version : {int64_t{0}, int64_t{1}, int64_t{1} << 53}) {
      EXPECT_TRUE(IsFreshEnough(schedule, INT64_MAX, version));
      EXPECT_TRUE(IsFreshEnough(schedule, version, version));
      EXPECT_TRUE(IsFreshEnough(schedule, version - staleness, version));
      EXPECT_FALSE(IsFreshEnough(schedule, version - staleness - 1, version));
      EXPECT_FALSE(IsFreshEnough(schedule, INT64_MIN, version));
    }
  }
}

}  // namespace
}  // namespace atl
