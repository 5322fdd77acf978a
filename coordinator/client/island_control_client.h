// An island's calls to the coordinator.
//
// One object is one member: Join makes it one, and the other calls fill in its
// ids, epoch and session secret. Every call has a deadline and is made once.
// All calls are idempotent; the caller decides when to retry
// (base/rpc/retry.h).
//
// A client remembers the newest place of the coordinator's log that a Join, its
// answer or a plan named, and sends it with each Join and plan stream.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "base/rpc/channel.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

class IslandControlClient {
 public:
  virtual ~IslandControlClient() = default;

  // Makes the caller a member, under a new epoch, and starts to follow its
  // plan. A second Join replaces the first.
  //
  // Errors as IslandService.Join; UNAVAILABLE or DEADLINE_EXCEEDED if the
  // coordinator is away. After an error the previous membership stays.
  virtual absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) = 0;

  // Says that the caller holds the parameters of the cut `commit_seq`.
  //
  // FAILED_PRECONDITION: not a member; Join. Else as IslandService.ReportReady.
  virtual absl::Status ReportReady(int64_t commit_seq) = 0;

  // Renews the lease, and reports what else `request` has. Fills in run_id,
  // island_id and island_epoch.
  //
  // FAILED_PRECONDITION: not a member; Join. Else as IslandService.Heartbeat.
  virtual absl::StatusOr<v1::HeartbeatResponse> Heartbeat(
      v1::HeartbeatRequest request) = 0;

  // Waits until `timeout` for a plan newer than `after` and returns the newest.
  // A broken stream is reopened automatically. A plan of an older coordinator
  // epoch is never returned after a newer one.
  //
  // DEADLINE_EXCEEDED: no newer plan came, also while the coordinator refuses
  // for its log (IsLogFault).
  // CANCELLED: `stop` was requested.
  // OUT_OF_RANGE: the run has ended; no newer plan will come.
  // FAILED_PRECONDITION: not a member; Join.
  // ABORTED: another process of the same island has joined since.
  // Also any error with which the coordinator ended the stream for good.
  virtual absl::StatusOr<v1::IslandPlan> WaitForPlan(const PlanPosition& after,
                                                     absl::Duration timeout,
                                                     std::stop_token stop) = 0;

  // Reports speed, losses and bytes. Fills in run_id, island_id and
  // island_epoch.
  //
  // FAILED_PRECONDITION: not a member; Join. Else as
  // IslandService.ReportProgress.
  virtual absl::Status ReportProgress(v1::ReportProgressRequest progress) = 0;

  // Leaves, and stops following the plan, even after an error. Fills in run_id,
  // island_id and island_epoch.
  //
  // Errors as IslandService.Leave.
  virtual absl::Status Leave(v1::LeaveRequest leave) = 0;
};

struct IslandControlClientOptions {
  std::string address;          // host:port
  rpc::ChannelOptions channel;  // kControl.
  // Called from another thread if a Join has no answer after rpc::kSlowAfter.
  // May be empty.
  std::function<void(absl::string_view peer)> on_join_waiting;
};

// Returns a client with its own connection. Nothing is dialled before the first
// call.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<IslandControlClient>> MakeIslandControlClient(
    const IslandControlClientOptions& options);

}  // namespace atl::coordinator
