#include "base/layout/run_length.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace atl {
namespace {

// Three islands of 8 x 128 tokens a step, 30 rounds of 20 steps.
v1::RunSpec Spec() {
  v1::RunSpec spec;
  spec.mutable_inner()->set_batch_size(8);
  spec.mutable_model()->set_sequence_length(128);
  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_STRICT);
  schedule.set_inner_step_count(20);
  schedule.set_round_count(30);
  schedule.set_island_count_min(3);
  schedule.set_min_quorum(2);
  return spec;
}

TEST(RunLengthTest, AStepHasTheTokensOfItsBatch) {
  EXPECT_EQ(TokensAStep(Spec()), 8 * 128);
  EXPECT_EQ(TokensOfSteps(Spec(), 5), 5 * 8 * 128);
  EXPECT_EQ(TokensOfSteps(Spec(), 0), 0);
}

TEST(RunLengthTest, AStepCountsInTheUnitOfTheRun) {
  v1::RunSpec spec = Spec();
  spec.set_weight_unit(v1::WEIGHT_UNIT_TOKENS);
  EXPECT_EQ(TokensAStep(spec), 8 * 128);
  spec.set_weight_unit(v1::WEIGHT_UNIT_SAMPLES);
  EXPECT_EQ(TokensOfSteps(spec, 5), 5 * 8);
  spec.set_weight_unit(v1::WEIGHT_UNIT_STEPS);
  EXPECT_EQ(TokensOfSteps(spec, 5), 5);
}

TEST(RunLengthTest, RoundsAloneMakeTheSteps) {
  EXPECT_EQ(PlannedStepCount(Spec()), 600);
}

TEST(RunLengthTest, ARoundAsksForAShareOfTheIslandsAndForItsQuorum) {
  EXPECT_EQ(SampleSize(8, 0.5, 1), 4);
  EXPECT_EQ(SampleSize(8, 0, 1), 8);
  EXPECT_EQ(SampleSize(8, 0.1, 3), 3);
  EXPECT_EQ(SampleSize(2, 0.1, 3), 2);
  EXPECT_EQ(SampleSize(3, 0.1, 0), 1);
}

TEST(RunLengthTest, ABudgetOfThoseRoundsMakesTheSameSteps) {
  v1::RunSpec spec = Spec();
  spec.mutable_schedule()->set_round_count(0);
  spec.mutable_schedule()->set_token_count(30 * 3 * 20 * 8 * 128);
  EXPECT_EQ(PlannedStepCount(spec), 600);
  spec.mutable_schedule()->set_token_count(30 * 3 * 20 * 8 * 128 + 1);
  EXPECT_EQ(PlannedStepCount(spec), 601) << "what is begun is a step";
}

TEST(RunLengthTest, WhatComesFirstOfRoundsAndBudgetCounts) {
  v1::RunSpec spec = Spec();
  spec.mutable_schedule()->set_token_count(10 * 3 * 20 * 8 * 128);
  EXPECT_EQ(PlannedStepCount(spec), 200);
  spec.mutable_schedule()->set_round_count(4);
  EXPECT_EQ(PlannedStepCount(spec), 80);
}

TEST(RunLengthTest, AnAsyncVersionIsOneContribution) {
  v1::RunSpec spec = Spec();
  spec.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  spec.mutable_schedule()->set_max_staleness(16);
  spec.mutable_schedule()->set_round_count(0);
  spec.mutable_schedule()->set_token_count(30 * 3 * 20 * 8 * 128);
  EXPECT_EQ(TokensAClockStep(spec), 8 * 128);
  EXPECT_EQ(PlannedStepCount(spec), 1800);
}

TEST(RunLengthTest, OfSampledIslandsThoseThatAreAskedCount) {
  v1::RunSpec spec = Spec();
  spec.mutable_schedule()->set_island_count_min(100);
  spec.mutable_schedule()->set_sample_fraction(0.1);
  EXPECT_EQ(TokensAClockStep(spec), 10 * 8 * 128);
}

TEST(RunLengthTest, LargeNumbersSaturate) {
  v1::RunSpec spec = Spec();
  spec.mutable_inner()->set_batch_size(INT32_MAX);
  spec.mutable_model()->set_sequence_length(INT32_MAX);
  EXPECT_EQ(TokensOfSteps(spec, 4), INT64_MAX);
  EXPECT_EQ(TokensAClockStep(spec), INT64_MAX);
  spec.mutable_schedule()->set_token_count(kTokenBudgetMax);
  EXPECT_EQ(PlannedStepCount(spec), 1);
}

}  // namespace
}  // namespace atl
