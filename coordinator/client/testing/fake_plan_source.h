// Shared by the fakes of the two control clients: a plan that a test sets and a
// client waits for by position, and queued errors of calls.
//
// Thread-safe.

#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

// `Plan` is v1::IslandPlan or v1::ServerPlan.
template <typename Plan>
class FakePlanSource {
 public:
  // Sets the newest plan; wakes WaitForPlan.
  void SetPlan(Plan plan) {
    std::lock_guard<std::mutex> lock(mutex_);
    plan_ = std::move(plan);
    changed_.notify_all();
  }

  // Queues an error for a later call of `method`.
  void FailNext(const std::string& method, absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    errors_[method].push_back(std::move(status));
    changed_.notify_all();
  }

  // Takes the next queued error of `method`; OK if there is none.
  absl::Status NextError(const std::string& method) {
    std::lock_guard<std::mutex> lock(mutex_);
    return TakeError(method);
  }

  // As IslandControlClient::WaitForPlan; its errors are queued under
  // "WaitForPlan".
  absl::StatusOr<Plan> WaitForPlan(const PlanPosition& after,
                                   absl::Duration timeout,
                                   std::stop_token stop) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto newer = [&] {
      return plan_.has_value() && ToPosition(*plan_) > after;
    };
    const auto failing = [&] {
      const auto found = errors_.find("WaitForPlan");
      return found != errors_.end() && !found->second.empty();
    };
    changed_.wait_for(lock, stop, absl::ToChronoNanoseconds(timeout),
                      [&] { return newer() || failing(); });
    RETURN_IF_ERROR(TakeError("WaitForPlan"));
    if (newer()) return *plan_;
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    return absl::DeadlineExceededError("no newer plan");
  }

 private:
  // Requires: mutex_ is held.
  absl::Status TakeError(const std::string& method) {
    const auto found = errors_.find(method);
    if (found == errors_.end() || found->second.empty()) {
      return absl::OkStatus();
    }
    absl::Status status = std::move(found->second.front());
    found->second.pop_front();
    return status;
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::optional<Plan> plan_;
  std::map<std::string, std::deque<absl::Status>> errors_;
};

}  // namespace atl::coordinator
