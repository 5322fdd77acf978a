// News for the loop, from the threads that hear it to those that act on it.
//
// Plans are level-triggered, so only the newest is kept: the size is bounded.
// Thread-safe.

#ifndef WORKER_ISLAND_MAILBOX_H_
#define WORKER_ISLAND_MAILBOX_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
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
  // True for a plan that makes the transfer under way moot.
  using ObsoleteCheck = std::function<bool(const v1::IslandPlan&)>;

  void PutJoined(v1::JoinResponse response);
  void PutPlan(v1::IslandPlan plan);
  void PutConnection(bool up);
  void PutRefused(absl::Status status);
  // Wakes up who waits: something outside changed.
  void Wake();

  // Hands what came to `loop`. Returns how much has come so far, for Wait().
  int64_t DrainInto(IslandLoop& loop);

  // Waits until more has come than `seen`, at most `timeout`. Without `seen`:
  // than when somebody drained last.
  void Wait(absl::Duration timeout, std::optional<int64_t> seen = std::nullopt);

  // From now until EndTransfer a plan for which `moot` is true, by itself or
  // with a join, requests a stop of the returned token; so do StopTransfer()
  // and PutRefused(). One transfer a lane.
  std::stop_token BeginTransfer(ObsoleteCheck moot,
                                Lane lane = Lane::kTraining);
  void EndTransfer(Lane lane = Lane::kTraining);
  // All of them.
  void StopTransfer();
  // The same, and every one that begins later is stopped at once.
  void CloseTransfers();

 private:
  struct Transfer {
    ObsoleteCheck moot;
    std::stop_source stop{std::nostopstate};
  };

  // Notes that something came; the transfers that `plan` makes moot.
  std::vector<std::stop_source> Came(const v1::IslandPlan* plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::JoinResponse> joined_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::IslandPlan> plan_ ABSL_GUARDED_BY(mutex_);
  std::optional<bool> connection_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> refused_ ABSL_GUARDED_BY(mutex_);
  // The newest plan, drained or not: what a transfer that begins is held to.
  std::optional<v1::IslandPlan> newest_ ABSL_GUARDED_BY(mutex_);
  int64_t came_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t drained_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<Transfer, kLaneCount> transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::worker

#endif  // WORKER_ISLAND_MAILBOX_H_
