// The newest plan of a stream of plans, by position.
//
// Shared by IslandControlClient and ServerControlClient. A plan of an older
// coordinator epoch never follows a newer one.

#ifndef COORDINATOR_CLIENT_PLAN_WATCH_H_
#define COORDINATOR_CLIENT_PLAN_WATCH_H_

#include <optional>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/watch.h"
#include "base/sync/mutex.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

// `Response` is a message with a field `plan`. Thread-safe, but only one thread
// may wait at a time.
template <typename Response, typename Plan>
class PlanWatch {
 public:
  PlanWatch(const rpc::WatchOptions& options,
            typename rpc::Watch<Response>::Open open)
      : watch_(options, std::move(open),
               [](const Response& came, const Response& held) {
                 return ToPosition(came.plan()) < ToPosition(held.plan());
               }) {}

  // As IslandControlClient::WaitForPlan.
  absl::StatusOr<Plan> WaitForPlan(const PlanPosition& after,
                                   absl::Time deadline, std::stop_token stop) {
    while (true) {
      if (auto plan = NewestAfter(after); plan.has_value()) {
        return *std::move(plan);
      }
      absl::StatusOr<Response> response = watch_.Next(deadline, stop);
      if (!response.ok()) return response.status();
      Offer(std::move(*response->mutable_plan()));
    }
  }

 private:
  std::optional<Plan> NewestAfter(const PlanPosition& after) {
    MutexLock lock(&mutex_);
    if (!newest_.has_value() || ToPosition(*newest_) <= after) {
      return std::nullopt;
    }
    return newest_;
  }

  void Offer(Plan plan) {
    MutexLock lock(&mutex_);
    if (!newest_.has_value() || ToPosition(*newest_) < ToPosition(plan)) {
      newest_ = std::move(plan);
    }
  }

  Mutex mutex_;
  std::optional<Plan> newest_ ABSL_GUARDED_BY(mutex_);
  rpc::Watch<Response> watch_;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CLIENT_PLAN_WATCH_H_
