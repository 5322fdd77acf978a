#include "worker/island/meter/island_meter.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(IslandMeterTest, UtilizationIsTheShareOfTimeInSteps) {
  IslandMeter meter;
  EXPECT_EQ(meter.utilization(), 0);
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  meter.Stepped(start, start + absl::Seconds(2));
  EXPECT_DOUBLE_EQ(meter.utilization(), 1);
  meter.Stepped(start + absl::Seconds(6), start + absl::Seconds(8));
  EXPECT_DOUBLE_EQ(meter.utilization(), 0.5);
  EXPECT_EQ(meter.computing(), absl::Seconds(4));
  EXPECT_EQ(meter.begin_time(), start);
  EXPECT_EQ(meter.end_time(), start + absl::Seconds(8));
}

TEST(IslandMeterTest, PausesAreThoseBetweenTheFirstStepAndTheLast) {
  IslandMeter meter;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  const auto step = [&] {
    meter.Stepped(now, now + absl::Seconds(1));
    now += absl::Seconds(1);
  };
  const auto pause = [&](const char* what, int seconds) {
    meter.Paused(what, absl::Seconds(seconds));
    now += absl::Seconds(seconds);
  };
  pause("wait: joining the run", 9);
  step();
  pause("contribute", 1);
  pause("wait: pulling fragment 3", 2);
  step();
  pause("wait: pulling fragment 12", 2);
  pause("contribute", 1);
  step();
  pause("contribute", 7);
  const std::vector<Pause> pauses = meter.pauses();
  ASSERT_EQ(pauses.size(), 2);
  EXPECT_EQ(pauses[0].what, "wait: pulling fragment");
  EXPECT_EQ(pauses[0].count, 2);
  EXPECT_EQ(pauses[0].span, absl::Seconds(4));
  EXPECT_EQ(pauses[1].what, "contribute");
  EXPECT_EQ(pauses[1].count, 2);
  EXPECT_EQ(pauses[1].span, absl::Seconds(2));
  absl::Duration sum = meter.computing();
  for (const Pause& each : pauses) sum += each.span;
  EXPECT_EQ(sum, meter.end_time() - meter.begin_time());
}

TEST(IslandMeterTest, AClockThatGoesBackIsNoTime) {
  IslandMeter meter;
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  meter.Stepped(start, start - absl::Seconds(5));
  EXPECT_EQ(meter.utilization(), 0);
  meter.Pushed(10, absl::Seconds(-1));
  EXPECT_EQ(meter.measurements(1).pushed.bytes, 0);
}

TEST(IslandMeterTest, TransfersAddUpAndEmptyOnesDoNotCount) {
  IslandMeter meter;
  meter.Pushed(100, absl::Seconds(1));
  meter.Pushed(0, absl::Seconds(30));
  meter.Pushed(300, absl::Seconds(3));
  meter.Pulled(50, absl::Seconds(2));
  meter.Contributed(7, absl::Seconds(5));
  const IslandMeasurements measured = meter.measurements(123);
  EXPECT_EQ(measured.tokens_per_second, 123);
  EXPECT_EQ(measured.pushed.bytes, 400);
  EXPECT_DOUBLE_EQ(measured.pushed.seconds, 4);
  EXPECT_EQ(measured.pulled.bytes, 50);
  EXPECT_DOUBLE_EQ(measured.pulled.seconds, 2);
  EXPECT_EQ(measured.contributed.bytes, 7);
  EXPECT_DOUBLE_EQ(measured.contributed.seconds, 5);
}

}  // namespace
}  // namespace atl::worker
