// Whether what a coordinator tells an island fits the run that it trains: what
// passes names no fragment, data shard or number that its parts, which take
// them as they are, do not have.
//
// Pure. Thread-safe.

#ifndef WORKER_CORE_CHECK_PLAN_H_
#define WORKER_CORE_CHECK_PLAN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// The largest version, step and position that a plan may name.
inline constexpr int64_t kPlanNumberMax = int64_t{1} << 53;
// The most steps of a round: what CreateRun takes.
inline constexpr int64_t kPlanStepsMax = int64_t{1} << 31;

// INVALID_ARGUMENT: a number of `plan` is none of a run of `spec`; the message
// names it.
absl::Status CheckPlan(const v1::RunSpec& spec, const v1::IslandPlan& plan);

// The same of a join and its plan. INVALID_ARGUMENT also: it is to a run of
// another spec.
absl::Status CheckJoin(const v1::RunSpec& spec,
                       const v1::JoinResponse& response);

}  // namespace atl::worker

#endif  // WORKER_CORE_CHECK_PLAN_H_
