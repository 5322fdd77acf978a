#include "coordinator/core/spec/validate_spec.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using Change = std::function<void(v1::RunSpec&)>;

TEST(ValidateStreamingTest, TakesStreamingSchedules) {
  v1::RunSpec spec = SimpleSpec(3);
  spec.mutable_schedule()->set_fragment_schedule(
      v1::FRAGMENT_SCHEDULE_STAGGERED);
  spec.mutable_schedule()->set_overlap_step_count(3);
  spec.mutable_schedule()->set_blend(0.5);
  EXPECT_TRUE(ValidateSpec(spec).empty());
  spec.mutable_schedule()->set_blend(0);
  spec.mutable_schedule()->set_eager(true);
  EXPECT_TRUE(ValidateSpec(spec).empty());
  spec = ElasticSpec(2);
  spec.mutable_schedule()->set_overlap_step_count(2);
  spec.mutable_inner()->set_save_every_syncs(100);
  spec.mutable_outer()->set_weighting(v1::WEIGHTING_TOKENS_SQUARED_PER_STEP);
  EXPECT_TRUE(ValidateSpec(spec).empty());
}

TEST(ValidateStreamingTest, NamesTheFieldOfEveryFault) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, Change>> faults = {
      {"spec.schedule.overlap_step_count",
       [](auto& s) { s.mutable_schedule()->set_overlap_step_count(4); }},
      {"spec.schedule.overlap_step_count",
       [](auto& s) { s.mutable_schedule()->set_overlap_step_count(-1); }},
      {"spec.schedule.overlap_step_count",
       [](auto& s) {
         s.mutable_schedule()->set_overlap_step_count(1);
         s.mutable_inner()->set_reset_each_round(true);
       }},
      {"spec.inner.save_every_syncs",
       [](auto& s) { s.mutable_inner()->set_save_every_syncs(2); }},
      {"spec.inner.save_every_syncs",
       [](auto& s) {
         s.mutable_schedule()->set_blend(0.5);
         s.mutable_inner()->set_save_every_syncs(-1);
       }},
      {"spec.schedule.blend",
       [](auto& s) { s.mutable_schedule()->set_blend(1.5); }},
      {"spec.schedule.blend",
       [=](auto& s) { s.mutable_schedule()->set_blend(nan); }},
      {"spec.schedule.fragment_schedule",
       [](auto& s) {
         s.mutable_schedule()->set_fragment_schedule(
             v1::FRAGMENT_SCHEDULE_STAGGERED);
         s.mutable_schedule()->set_inner_step_count(1);
         s.mutable_layout()->set_fragment_count(2);
       }},
      {"spec.schedule.sample_fraction",
       [](auto& s) {
         s.mutable_schedule()->set_blend(0.5);
         s.mutable_schedule()->set_sample_fraction(0.5);
       }},
      {"spec.schedule.eager",
       [](auto& s) { s.mutable_schedule()->set_eager(true); }},
      {"spec.schedule.eager",
       [](auto& s) {
         s.mutable_schedule()->set_eager(true);
         s.mutable_schedule()->set_overlap_step_count(3);
         s.mutable_schedule()->set_blend(0.5);
       }},
      {"spec.schedule.eager",
       [](auto& s) {
         s.mutable_schedule()->set_eager(true);
         s.mutable_schedule()->set_overlap_step_count(3);
         s.mutable_outer()->mutable_merge()->set_rule(v1::MERGE_RULE_KIND_RDA);
       }},
  };
  for (const auto& [field, change] : faults) {
    v1::RunSpec spec = SimpleSpec();
    change(spec);
    std::vector<FieldViolation> violations;
    ValidateStreaming(spec, violations);
    bool named = false;
    for (const FieldViolation& violation : violations) {
      named = named || violation.field == field;
      EXPECT_GT(violation.description.size(), 8u);
    }
    EXPECT_TRUE(named) << field;
    // CreateRun includes this check.
    EXPECT_GE(ValidateSpec(spec).size(), violations.size());
  }
}

TEST(ValidateStreamingTest, LeavesRunsInRoundsAlone) {
  std::vector<FieldViolation> violations;
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_sample_fraction(0.5);
  spec.mutable_inner()->set_reset_each_round(true);
  ValidateStreaming(spec, violations);
  EXPECT_TRUE(violations.empty());
  // Another check refuses too many steps.
  for (const int64_t steps : {int64_t{1}, INT64_MAX}) {
    spec.mutable_schedule()->set_inner_step_count(steps);
    ValidateStreaming(spec, violations);
  }
  EXPECT_TRUE(violations.empty()) << violations[0].field;
}

}  // namespace
}  // namespace atl::coordinator
