#include "cli/doctor/forecast.h"

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

// 1e6 parameters in f32 both ways, every 100 steps of 1024 tokens.
v1::RunSpec Spec() {
  v1::RunSpec spec;
  spec.mutable_layout()->set_fragment_count(1);
  spec.mutable_layout()->add_tensors()->add_shape(1'000'000);
  spec.mutable_model()->set_sequence_length(128);
  spec.mutable_inner()->set_batch_size(8);
  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_ELASTIC);
  schedule.set_inner_step_count(100);
  schedule.set_island_count_min(2);
  schedule.set_min_quorum(1);
  spec.set_server_count(1);
  return spec;
}

LinkFacts Link() { return {1e6, 1e6, 0.02}; }

TEST(ForecastTest, ARoundIsItsStepsAndItsTransfers) {
  const auto forecast = MakeForecast(Spec(), Link(), 1024);
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  // 100 s of steps; 4 s up and 4 s down.
  EXPECT_NEAR(forecast->plan.round_seconds, 108, 2);
  EXPECT_NEAR(forecast->plan.utilization, 100.0 / 108, 0.02);
  const Json data = ToData(*forecast);
  EXPECT_NEAR(data["up_bytes_per_day"].get<double>(), 86400.0 / 108 * 4e6, 1e8);
  EXPECT_EQ(data["tokens_per_second"], 1024);
  EXPECT_EQ(data.size(), 5);
}

TEST(ForecastTest, ASlowerLinkMakesLongerRounds) {
  LinkFacts slow = Link();
  slow.up_bytes_per_second = 1e5;
  EXPECT_GT(MakeForecast(Spec(), slow, 1024)->plan.round_seconds,
            MakeForecast(Spec(), Link(), 1024)->plan.round_seconds + 30);
}

TEST(ForecastTest, WhatWasNotMeasuredGivesNoForecast) {
  EXPECT_FALSE(MakeForecast(Spec(), Link(), 0).ok());
  EXPECT_FALSE(MakeForecast(Spec(), {0, 1e6, 0}, 1024).ok());
  EXPECT_FALSE(MakeForecast(v1::RunSpec(), Link(), 1024).ok());
}

TEST(ForecastTest, IsASentenceWithin80Columns) {
  const std::string text = ToText(*MakeForecast(Spec(), Link(), 1024));
  EXPECT_THAT(text, HasSubstr("a round takes 1m"));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80);
  }
}

}  // namespace
}  // namespace atl::cli
