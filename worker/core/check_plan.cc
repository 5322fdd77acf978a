#include "worker/core/check_plan.h"

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

absl::Status InRange(absl::string_view field, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the coordinator's ", field, " is ", value,
                   ", which is not in [0, ", most, "]"));
}

absl::Status CheckSlot(const v1::RunSpec& spec, const v1::SlotPlan& slot) {
  RETURN_IF_ERROR(InRange("step_count", slot.step_count(), kPlanStepsMax));
  RETURN_IF_ERROR(InRange("start_step", slot.start_step(), kPlanNumberMax));
  RETURN_IF_ERROR(InRange("data_shard", slot.data_shard(),
                          spec.data().data_shard_count() - 1));
  return InRange("data_position", slot.data_position(), kPlanNumberMax);
}

}  // namespace

absl::Status CheckPlan(const v1::RunSpec& spec, const v1::IslandPlan& plan) {
  const int32_t fragment_count = spec.layout().fragment_count();
  RETURN_IF_ERROR(InRange("slot", plan.slot(), INT32_MAX));
  if (plan.cut_size() != 0 && plan.cut_size() != fragment_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("the coordinator's cut has ", plan.cut_size(),
                     " fragments, but the run has ", fragment_count));
  }
  for (int f = 0; f < plan.cut_size(); ++f) {
    const v1::FragmentVersion& at = plan.cut(f);
    if (at.fragment() != f) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the coordinator's cut names fragment ", at.fragment(), " as ", f));
    }
    RETURN_IF_ERROR(InRange("cut.version", at.version(), kPlanNumberMax));
    RETURN_IF_ERROR(
        InRange("cut.commit_seq", at.commit_seq(), kPlanNumberMax));
  }
  for (const v1::OpenRound& open : plan.open_rounds()) {
    RETURN_IF_ERROR(InRange("open_rounds.fragment", open.fragment(),
                            fragment_count - 1));
    RETURN_IF_ERROR(
        InRange("open_rounds.version", open.version(), kPlanNumberMax));
    for (const v1::SlotPlan& slot : open.slots()) {
      RETURN_IF_ERROR(CheckSlot(spec, slot));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRunUid(absl::string_view own, absl::string_view came) {
  if (own.empty() || came.empty() || own == came) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_RUN",
                absl::StrCat("this is another run with the same run_id: its "
                             "run_uid is ",
                             came, ", not ", own));
}

absl::Status CheckFeatures(const v1::RunSpec& spec) {
  const uint64_t lacking = RequiredFeatures(spec) & ~ProgramFeatures();
  if (lacking == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "MISSING_FEATURES",
                absl::StrCat("this program is too old for the run; it lacks ",
                             DescribeFeatures(lacking),
                             ": upgrade it to the coordinator's version"));
}

absl::Status CheckJoin(const v1::RunSpec& spec,
                       const v1::JoinResponse& response) {
  // Bytes, not fields, are compared: a field that a newer program adds counts.
  if (response.run().spec().SerializeAsString() != spec.SerializeAsString()) {
    return absl::InvalidArgumentError(
        "the coordinator's run has another spec than the one that was read "
        "before");
  }
  RETURN_IF_ERROR(InRange("slot", response.slot(), INT32_MAX));
  RETURN_IF_ERROR(InRange("next_seq", response.next_seq(), kPlanNumberMax));
  RETURN_IF_ERROR(InRange("data_shard", response.data_shard(),
                          spec.data().data_shard_count() - 1));
  RETURN_IF_ERROR(
      InRange("data_position", response.data_position(), kPlanNumberMax));
  return CheckPlan(spec, response.plan());
}

}  // namespace atl::worker
