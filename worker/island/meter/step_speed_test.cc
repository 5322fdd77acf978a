#include "worker/island/meter/step_speed.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(StepSpeedTest, IsKnownFromTheFirstStep) {
  StepSpeed speed;
  EXPECT_EQ(speed.tokens_per_second(), 0);
  speed.Add(100, 0.5);
  EXPECT_NEAR(speed.tokens_per_second(), 200, 1e-9);
}

TEST(StepSpeedTest, CountsTheTimeThatAProcessStoodStill) {
  StepSpeed speed;
  for (int i = 0; i < 4000; ++i) {
    // Every tenth step is 30 ms longer: a quarter of the speed.
    speed.Add(100, i % 10 == 9 ? 0.031 : 0.001);
  }
  EXPECT_NEAR(speed.tokens_per_second(), 25000, 500);
}

TEST(StepSpeedTest, OneLongPauseDoesNotMoveIt) {
  StepSpeed speed;
  for (int i = 0; i < 20; ++i) speed.Add(100, 0.1);
  speed.Add(100, 600);
  EXPECT_NEAR(speed.tokens_per_second(), 1000, 1);
  for (int i = 0; i < 10; ++i) speed.Add(100, 0.1);
  EXPECT_NEAR(speed.tokens_per_second(), 1000, 1);
}

TEST(StepSpeedTest, APauseAtTheStartIsOverWithTheNextStep) {
  StepSpeed speed;
  speed.Add(100, 8.1);
  speed.Add(10, 0.01);
  EXPECT_NEAR(speed.tokens_per_second(), 1000, 1);
}

TEST(StepSpeedTest, FollowsAChangeInSeconds) {
  StepSpeed speed;
  for (int i = 0; i < 100; ++i) speed.Add(100, 0.1);
  for (int i = 0; i < 100; ++i) speed.Add(100, 0.2);
  EXPECT_NEAR(speed.tokens_per_second(), 500, 15);
}

}  // namespace
}  // namespace atl::worker
