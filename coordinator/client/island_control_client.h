// What an island asks of the coordinator.
//
// One object is one member: Join makes it one, the rest speaks for it, with its
// ids, epoch and session secret filled in. Every call has a deadline and is
// made once: all are idempotent, and the caller's loop decides when to ask
// again (base/rpc/retry.h).
//
// Thread-safe.

#ifndef COORDINATOR_CLIENT_ISLAND_CONTROL_CLIENT_H_
#define COORDINATOR_CLIENT_ISLAND_CONTROL_CLIENT_H_

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
#include "base/rpc/retry.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

class IslandControlClient {
 public:
  virtual ~IslandControlClient() = default;

  // Makes the caller a member, under a new epoch, and starts to follow its
  // plan. A second Join takes the place of the first.
  //
  // Errors as IslandService.Join; UNAVAILABLE or DEADLINE_EXCEEDED if the
  // coordinator is away: the membership that was stays.
  virtual absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) = 0;

  // Says that the caller holds the parameters of the cut `commit_seq`.
  //
  // FAILED_PRECONDITION: not a member; Join. Else as IslandService.ReportReady.
  virtual absl::Status ReportReady(int64_t commit_seq) = 0;

  // Renews the lease; returns how long it now lasts.
  //
  // FAILED_PRECONDITION: not a member; Join. Else as IslandService.Heartbeat.
  virtual absl::StatusOr<absl::Duration> Heartbeat() = 0;

  // The newest plan that lies after `after`, waiting for one until `timeout`.
  // The stream behind it is opened again by itself when it breaks. Plans of an
  // older life of the coordinator are never returned after newer ones.
  //
  // DEADLINE_EXCEEDED: no plan is newer.
  // CANCELLED: `stop` was requested.
  // OUT_OF_RANGE: the run has ended and no newer plan comes.
  // FAILED_PRECONDITION: not a member; Join.
  // ABORTED: another process of the same island has joined since.
  // Any other error with which the coordinator ended the stream for good.
  virtual absl::StatusOr<v1::IslandPlan> WaitForPlan(const PlanPosition& after,
                                                     absl::Duration timeout,
                                                     std::stop_token stop) = 0;

  // Reports speed, losses and bytes; run_id, island_id and island_epoch are
  // filled in.
  //
  // FAILED_PRECONDITION: not a member; Join. Else as
  // IslandService.ReportProgress.
  virtual absl::Status ReportProgress(v1::ReportProgressRequest progress) = 0;

  // Leaves, and stops following the plan, even after an error.
  //
  // As IslandService.Leave.
  virtual absl::Status Leave(absl::string_view reason) = 0;
};

struct IslandControlClientOptions {
  std::string address;                         // host:port
  rpc::ChannelOptions channel;                 // kControl.
  absl::Duration timeout = absl::Seconds(10);  // Of every call.
  absl::Duration heartbeat_timeout = absl::Seconds(5);
  // Of the plan's stream: short, for who waits for it waits for everything.
  rpc::RetryPolicy watch_retry{absl::Milliseconds(100), absl::Seconds(1)};
  uint64_t seed = 0;  // Of its jitter.
  // Called, from another thread, when a Join has not been answered for
  // rpc::kSlowAfter, with who does not. May be empty.
  std::function<void(absl::string_view peer)> on_join_waiting;
};

// A client on a connection of its own. Nothing is dialled before the first
// call.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<IslandControlClient>> MakeIslandControlClient(
    const IslandControlClientOptions& options);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CLIENT_ISLAND_CONTROL_CLIENT_H_
