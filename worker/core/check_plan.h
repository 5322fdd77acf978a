// Validates what a coordinator sends, so that the other parts of an island need
// not check it again. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// The largest version, step or position that a plan may name.
inline constexpr int64_t kPlanNumberMax = int64_t{1} << 53;
// The most steps in a round: the limit of CreateRun.
inline constexpr int64_t kPlanStepsMax = int64_t{1} << 31;

// INVALID_ARGUMENT: names the number in `plan` that does not fit `spec`.
absl::Status CheckPlan(const v1::RunSpec& spec, const v1::IslandPlan& plan);

// FAILED_PRECONDITION, OTHER_RUN: `came` is the uid of another run than `own`.
// Empty is not checked: runs and programs of before there were uids have none.
absl::Status CheckRunUid(absl::string_view own, absl::string_view came);

// FAILED_PRECONDITION, MISSING_FEATURES: this program cannot train a run of
// `spec`; the message says what it lacks.
absl::Status CheckFeatures(const v1::RunSpec& spec);

// Also INVALID_ARGUMENT: the joined run has another spec.
absl::Status CheckJoin(const v1::RunSpec& spec,
                       const v1::JoinResponse& response);

}  // namespace atl::worker
