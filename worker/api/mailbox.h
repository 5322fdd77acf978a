// News for the loop, from the threads that hear it to the one that computes.
//
// Plans are level-triggered, so only the newest is kept: the size is bounded.
// Thread-safe.

#ifndef WORKER_API_MAILBOX_H_
#define WORKER_API_MAILBOX_H_

#include <functional>
#include <optional>
#include <stop_token>

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
  using MootCheck = std::function<bool(const v1::IslandPlan&)>;

  void PutJoined(v1::JoinResponse response);
  void PutPlan(v1::IslandPlan plan);
  void PutConnection(bool up);
  void PutRefused(absl::Status status);
  // Wakes up who waits: something outside changed.
  void Wake();

  // Hands what came to `loop`.
  void DrainInto(IslandLoop& loop);

  // Waits until something comes, at most `timeout`.
  void Wait(absl::Duration timeout);

  // From now until EndTransfer a plan for which `moot` is true, by itself or
  // with a join, requests a stop of the returned token; so do StopTransfer() and
  // PutRefused().
  std::stop_token BeginTransfer(MootCheck moot);
  void EndTransfer();
  void StopTransfer();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::JoinResponse> joined_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::IslandPlan> plan_ ABSL_GUARDED_BY(mutex_);
  std::optional<bool> connection_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> refused_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  MootCheck moot_ ABSL_GUARDED_BY(mutex_);
  std::stop_source transfer_ ABSL_GUARDED_BY(mutex_){std::nostopstate};
};

}  // namespace atl::worker

#endif  // WORKER_API_MAILBOX_H_
