#include "coordinator/core/spec/validate_spec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/layout/fragment_schedule.h"

namespace atl::coordinator {
namespace {

// Outer optimizers whose step an island can predict from one gradient.
bool IsForeseeable(v1::OuterOptimizerKind kind) {
  switch (kind) {
    case v1::OUTER_OPTIMIZER_KIND_SGD:
    case v1::OUTER_OPTIMIZER_KIND_MOMENTUM:
    case v1::OUTER_OPTIMIZER_KIND_NESTEROV:
    case v1::OUTER_OPTIMIZER_KIND_FEDAVG:
    case v1::OUTER_OPTIMIZER_KIND_FEDAVGM:
      return true;
    default:
      return false;
  }
}

}  // namespace

void ValidateStreaming(const v1::RunSpec& spec,
                       std::vector<FieldViolation>& violations) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  const auto require = [&](bool holds, absl::string_view field,
                           absl::string_view description) {
    if (holds) return;
    violations.push_back(
        {absl::StrCat("spec.schedule.", field), std::string(description)});
  };
  const int64_t overlap = schedule.overlap_step_count();
  require(
      overlap == 0 || (overlap > 0 && overlap < schedule.inner_step_count()),
      "overlap_step_count",
      absl::StrCat("is ", overlap,
                   "; must be at least 0 and less than "
                   "schedule.inner_step_count, or a fragment would be "
                   "pushed again before its answer is applied"));
  const double blend = schedule.blend();
  require(blend >= 0 && blend <= 1, "blend",
          absl::StrCat("is ", blend,
                       "; must be in [0, 1]: it is the weight of "
                       "the local parameters"));
  require(v1::FragmentSchedule_IsValid(schedule.fragment_schedule()),
          "fragment_schedule", "must be TOGETHER or STAGGERED");
  require(schedule.fragment_schedule() != v1::FRAGMENT_SCHEDULE_STAGGERED ||
              schedule.inner_step_count() >= spec.layout().fragment_count(),
          "fragment_schedule",
          "staggered fragments are pushed at steps of their own, so "
          "schedule.inner_step_count must be at least layout.fragment_count");
  const int64_t every = spec.inner().save_every_syncs();
  const int64_t every_max = IsStreaming(schedule) ? 1 << 20 : 1;
  if (every < 0 || every > every_max) {
    violations.push_back(
        {"spec.inner.save_every_syncs",
         absl::StrCat("is ", every, "; must be in [0, ", every_max, "]",
                      IsStreaming(schedule)
                          ? ""
                          : ": islands of a run in rounds save once a round")});
  }
  if (!IsStreaming(schedule)) return;
  const double sample = schedule.sample_fraction();
  require(sample == 0 || sample == 1, "sample_fraction",
          "a streaming island trains through all rounds, so every round "
          "expects it: leave it 1, or turn streaming off (no overlap, no "
          "blend, fragments together)");
  require(
      !spec.inner().reset_each_round(), "overlap_step_count",
      "rounds of a streaming run overlap, so there is no place to reset the "
      "inner optimizer: leave inner.reset_each_round false");
  if (!schedule.eager()) return;
  require(overlap > 0, "eager",
          "there is nothing to predict without schedule.overlap_step_count");
  require(blend == 0, "eager",
          "an eager island corrects its prediction with the answer, a blending "
          "one mixes the answer in: leave schedule.blend 0");
  require(IsForeseeable(spec.outer().optimizer()), "eager",
          "an island can predict the step of SGD, MOMENTUM, NESTEROV, FEDAVG "
          "and FEDAVGM, not of this outer optimizer");
  const v1::MergeRuleKind rule = spec.outer().merge().rule();
  require(rule == v1::MERGE_RULE_KIND_UNSPECIFIED ||
              rule == v1::MERGE_RULE_KIND_WEIGHTED_MEAN,
          "eager",
          "an island can predict its share of a weighted mean, not of this "
          "merge rule");
}

}  // namespace atl::coordinator
