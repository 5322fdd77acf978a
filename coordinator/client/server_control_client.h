// A parameter server's calls to the coordinator.
//
// Every call has a deadline and is made once. All calls are idempotent; the
// caller decides when to retry.
//
// Thread-safe.

#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/server_service.pb.h"
#include "base/rpc/channel.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

class ServerControlClient {
 public:
  virtual ~ServerControlClient() = default;

  // Registers this incarnation of the server and starts to follow its plan.
  // Calls for plans carry the newest log_seen of a request or a report, or the
  // answer's position.
  //
  // Errors as ServerService.RegisterServer; UNAVAILABLE or DEADLINE_EXCEEDED if
  // the coordinator is away.
  virtual absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request) = 0;

  // Waits until `timeout` for a plan newer than `after` and returns the newest.
  //
  // DEADLINE_EXCEEDED: no newer plan came.
  // CANCELLED: `stop` was requested.
  // FAILED_PRECONDITION: not registered; RegisterServer.
  // ABORTED: a later incarnation of this server is registered.
  // Also any error with which the coordinator ended the stream for good.
  virtual absl::StatusOr<v1::ServerPlan> WaitForPlan(const PlanPosition& after,
                                                     absl::Duration timeout,
                                                     std::stop_token stop) = 0;

  // Reports the state of every shard and renews the lease. Fills in server_id
  // and incarnation.
  //
  // FAILED_PRECONDITION: not registered; RegisterServer. Else as
  // ServerService.ReportShards. whole_report_run_ids are those of all messages.
  virtual absl::StatusOr<v1::ReportShardsResponse> ReportShards(
      v1::ReportShardsRequest report) = 0;
};

// Returns a client with its own connection to `address` (host:port). `channel`
// is of kind kControl.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<ServerControlClient>> MakeServerControlClient(
    const std::string& address, const rpc::ChannelOptions& channel);

}  // namespace atl::coordinator
