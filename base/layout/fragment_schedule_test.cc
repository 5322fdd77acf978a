#include "base/layout/fragment_schedule.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

v1::ScheduleSpec Staggered(int64_t inner_step_count) {
  v1::ScheduleSpec schedule;
  schedule.set_inner_step_count(inner_step_count);
  schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
  return schedule;
}

TEST(FragmentScheduleTest, TogetherAllFragmentsArePushedAtTheEndOfARound) {
  v1::ScheduleSpec schedule;
  schedule.set_inner_step_count(20);
  EXPECT_FALSE(IsStreaming(schedule));
  for (int32_t p = 0; p < 3; ++p) {
    EXPECT_EQ(StartStep(schedule, 3, p, 0), 0);
    EXPECT_EQ(PushStep(schedule, 3, p, 0), 20);
    EXPECT_EQ(StartStep(schedule, 3, p, 4), 80);
    EXPECT_EQ(PushStep(schedule, 3, p, 4), 100);
  }
}

TEST(FragmentScheduleTest, StaggeredFragmentsArePushedOneAfterTheOther) {
  const v1::ScheduleSpec schedule = Staggered(10);
  std::vector<int64_t> steps;
  for (int64_t v = 0; v < 2; ++v) {
    for (int32_t p = 0; p < 4; ++p) {
      steps.push_back(PushStep(schedule, 4, p, v));
    }
  }
  // ceil(10 / 4), ceil(20 / 4), ...
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 5, 8, 10, 13, 15, 18, 20}));
  EXPECT_EQ(StartStep(schedule, 4, 1, 0), 0);
  EXPECT_EQ(StartStep(schedule, 4, 1, 1), 5);
}

TEST(FragmentScheduleTest, HoldsForAnyPeriodThatHasAStepForEachFragment) {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    const auto count = static_cast<int32_t>(1 + random() % 40);
    const auto period = static_cast<int64_t>(count + random() % 500);
    const auto round_count = static_cast<int64_t>(1 + random() % 50);
    const v1::ScheduleSpec schedule = Staggered(period);
    int64_t before = 0;
    for (int32_t p = 0; p < count; ++p) {
      // Pushes of different fragments fall on different steps.
      EXPECT_GT(PushStep(schedule, count, p, 0), before);
      before = PushStep(schedule, count, p, 0);
      EXPECT_EQ(PushStep(schedule, count, p, round_count) -
                    StartStep(schedule, count, p, round_count),
                period);
    }
    EXPECT_EQ(PushStep(schedule, count, count - 1, round_count - 1),
              round_count * period);
  }
}

TEST(FragmentScheduleTest, ARunIsStreamingByAnyOfItsOptions) {
  v1::ScheduleSpec schedule;
  schedule.set_inner_step_count(10);
  schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_TOGETHER);
  EXPECT_FALSE(IsStreaming(schedule));
  EXPECT_TRUE(IsStreaming(Staggered(10)));
  schedule.set_overlap_step_count(1);
  EXPECT_TRUE(IsStreaming(schedule));
  schedule.set_overlap_step_count(0);
  schedule.set_blend(0.5);
  EXPECT_TRUE(IsStreaming(schedule));
  schedule.set_blend(0);
  schedule.set_eager(true);
  EXPECT_TRUE(IsStreaming(schedule));
}

}  // namespace
}  // namespace atl
