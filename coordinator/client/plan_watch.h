// The newest plan of a stream of plans, by position.
//
// Used by IslandControlClient and ServerControlClient. A plan of an older life
// of the coordinator never follows a newer one.

#pragma once

#include <random>
#include <stop_token>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/watch.h"
#include "base/status/status_macros.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

// `Response` is a message with one field `plan`. Thread-safe.
template <typename Response, typename Plan>
class PlanWatch {
 public:
  // Retries are short, because all work waits for the plan.
  explicit PlanWatch(typename rpc::Watch<Response>::Open open)
      : watch_({{absl::Milliseconds(100), absl::Seconds(1)},
                std::random_device()()},
               std::move(open), [](const Response& came, const Response& held) {
                 return ToPosition(came.plan()) < ToPosition(held.plan());
               }) {}

  // As IslandControlClient::WaitForPlan.
  absl::StatusOr<Plan> WaitForPlan(const PlanPosition& after,
                                   absl::Time deadline, std::stop_token stop) {
    ASSIGN_OR_RETURN(Response response, watch_.Next(
                                            [&](const Response& newest) {
                                              return ToPosition(newest.plan()) >
                                                     after;
                                            },
                                            deadline, std::move(stop)));
    return std::move(*response.mutable_plan());
  }

 private:
  rpc::Watch<Response> watch_;
};

}  // namespace atl::coordinator
