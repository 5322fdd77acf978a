// What a parameter server asks of the coordinator.
//
// Every call has a deadline and is made once: all are idempotent and whole, and
// the caller's loop decides when to ask again.
//
// Thread-safe.

#ifndef COORDINATOR_CLIENT_SERVER_CONTROL_CLIENT_H_
#define COORDINATOR_CLIENT_SERVER_CONTROL_CLIENT_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/server_service.pb.h"
#include "base/rpc/channel.h"
#include "base/rpc/retry.h"
#include "coordinator/client/plan_position.h"

namespace atl::coordinator {

class ServerControlClient {
 public:
  virtual ~ServerControlClient() = default;

  // Registers this life of the server and starts to follow its plan.
  //
  // Errors as ServerService.RegisterServer; UNAVAILABLE or DEADLINE_EXCEEDED if
  // the coordinator is away.
  virtual absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request) = 0;

  // The newest plan that lies after `after`, waiting for one until `timeout`.
  //
  // DEADLINE_EXCEEDED: no plan is newer.
  // CANCELLED: `stop` was requested.
  // FAILED_PRECONDITION: not registered; RegisterServer.
  // ABORTED: a later life of this server is registered.
  // Any other error with which the coordinator ended the stream for good.
  virtual absl::StatusOr<v1::ServerPlan> WaitForPlan(const PlanPosition& after,
                                                     absl::Duration timeout,
                                                     std::stop_token stop) = 0;

  // Reports the state of every shard and renews the lease; returns how long it
  // now lasts. server_id and incarnation are filled in.
  //
  // FAILED_PRECONDITION: not registered; RegisterServer. Else as
  // ServerService.ReportShards.
  virtual absl::StatusOr<absl::Duration> ReportShards(
      v1::ReportShardsRequest report) = 0;
};

struct ServerControlClientOptions {
  std::string address;                         // host:port
  rpc::ChannelOptions channel;                 // kControl.
  absl::Duration timeout = absl::Seconds(10);  // Of every call.
  // Of the plan's stream: short, for who waits for it waits for everything.
  rpc::RetryPolicy watch_retry{absl::Milliseconds(100), absl::Seconds(1)};
  uint64_t seed = 0;  // Of its jitter.
};

// A client on a connection of its own.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<ServerControlClient>> MakeServerControlClient(
    const ServerControlClientOptions& options);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CLIENT_SERVER_CONTROL_CLIENT_H_
