// News for the loop, from the threads that receive it to those that act on it.
//
// Only the newest plan is kept: the size is bounded. Plans must arrive in the
// order of their positions (control_link.h). Thread-safe.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "base/sync/mutex.h"
#include "worker/core/island_loop.h"

namespace atl::worker {

class Mailbox {
 public:
  // True for a plan that makes the current transfer obsolete.
  using ObsoleteCheck = std::function<bool(const v1::IslandPlan&)>;

  void PutJoined(v1::JoinResponse response);
  void PutPlan(v1::IslandPlan plan);
  // IslandLoop::OnConnection.
  void PutConnection(bool up, std::string why = "");
  void PutRefused(absl::Status status);
  // A file that the island waits for is here, or cannot come.
  void PutDataCame();
  // Wakes all waiting threads: something outside has changed.
  void Wake();

  // Hands the news to `loop`. Returns the count of all news so far, for Wait().
  int64_t DrainInto(IslandLoop& loop);

  // Waits until the count of news exceeds `seen`, at most `timeout`. Without
  // `seen`: the count at the last DrainInto().
  void Wait(absl::Duration timeout, std::optional<int64_t> seen = std::nullopt);

  // Until EndTransfer a plan for which `is_obsolete` is true requests a stop of
  // the returned token; so do StopTransfer() and PutRefused(). One transfer for
  // each lane.
  std::stop_token BeginTransfer(ObsoleteCheck is_obsolete,
                                Lane lane = Lane::kTraining);
  void EndTransfer(Lane lane = Lane::kTraining);
  void StopTransfer();
  // Stops all transfers, also those that begin later.
  void CloseTransfers();

 private:
  struct Transfer {
    ObsoleteCheck is_obsolete;
    std::stop_source stop{std::nostopstate};
  };

  // Counts news and wakes all waiting threads.
  void Came() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the transfers that `plan` makes obsolete.
  std::vector<std::stop_source> SetPlan(v1::IslandPlan plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::JoinResponse> joined_ ABSL_GUARDED_BY(mutex_);
  struct Connection {
    bool up = false;
    std::string why;
  };
  std::optional<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> refused_ ABSL_GUARDED_BY(mutex_);
  bool data_came_ ABSL_GUARDED_BY(mutex_) = false;
  // The newest plan, and whether the loop lacks it.
  std::optional<v1::IslandPlan> newest_ ABSL_GUARDED_BY(mutex_);
  bool plan_is_new_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t came_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t drained_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<Transfer, kLaneCount> transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::worker
