#include "worker/engine/optimizer/learning_rate_schedule.h"

#include <cmath>

#include "gtest/gtest.h"

namespace atl::engine {
namespace {

TEST(LearningRateScheduleTest, RisesLinearlyThenFallsAlongACosineToTheFloor) {
  const LearningRateSchedule schedule{.peak = 2.0,
                                      .warmup_step_count = 4,
                                      .total_step_count = 24,
                                      .final_fraction = 0.1};
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 0), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 3), 2.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 4), 2.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 14), 2.0 * (0.1 + 0.9 * 0.5));
  EXPECT_NEAR(LearningRateAt(schedule, 24), 0.2, 1e-12);
  EXPECT_NEAR(LearningRateAt(schedule, 1000), 0.2, 1e-12);
  for (int step = 4; step < 24; ++step) {
    EXPECT_LT(LearningRateAt(schedule, step + 1),
              LearningRateAt(schedule, step));
  }
}

TEST(LearningRateScheduleTest, IsConstantWithoutAPlannedEndOrAFloorOfOne) {
  EXPECT_EQ(LearningRateAt({.peak = 3.0}, 0), 3.0);
  EXPECT_EQ(LearningRateAt({.peak = 3.0}, 1'000'000), 3.0);
  const LearningRateSchedule flat{
      .peak = 3.0, .total_step_count = 10, .final_fraction = 1.0};
  for (int step = 0; step < 12; ++step) {
    EXPECT_DOUBLE_EQ(LearningRateAt(flat, step), 3.0);
  }
}

TEST(LearningRateScheduleTest, AWarmupLongerThanTheRunIsNoDivisionByZero) {
  const LearningRateSchedule schedule{
      .peak = 1.0, .warmup_step_count = 50, .total_step_count = 10};
  for (int step = 0; step < 60; ++step) {
    EXPECT_TRUE(std::isfinite(LearningRateAt(schedule, step)));
  }
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 9), 0.2);
}

TEST(LearningRateScheduleTest, ARestartWarmsUpAgain) {
  EXPECT_DOUBLE_EQ(RestartWarmupFactor(0, 10), 0.1);
  EXPECT_DOUBLE_EQ(RestartWarmupFactor(9, 10), 1.0);
  EXPECT_DOUBLE_EQ(RestartWarmupFactor(99, 10), 1.0);
  EXPECT_DOUBLE_EQ(RestartWarmupFactor(0, 0), 1.0);
}

}  // namespace
}  // namespace atl::engine
