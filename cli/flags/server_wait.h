// Handles waits for a run's servers: shows which server the command waits for,
// for how long and how to stop, and asks the coordinator for the server's new
// address.
//
// Thread-compatible.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "base/rpc/wait_notice.h"
#include "base/sync/mutex.h"
#include "coordinator/client/client.h"
#include "server/client/transfer.h"

namespace atl::cli {

// Adds --patience for a command that reads from servers; parse its value with
// ParsePatience.
void AddPatience(flags::Command& command, std::string& patience);

// "waiting for server s1 at 10.0.0.5:7401, at most 1m: connection refused
// (--patience; Ctrl-C stops it)". Pure.
std::string DescribeWaiting(const server::TransferWait& waiting,
                            const server::ShardRoutes& routes,
                            absl::Duration patience);

// The routes of the shards in `state`, without a placement epoch.
server::ShardRoutes RoutesOfState(const v1::GetRunStateResponse& state);

class ServerWait {
 public:
  // Receives new routes, on another thread.
  using SetRoutes = std::function<void(const server::ShardRoutes&)>;
  // Shows a line that stays, when rpc::WaitNotice is due.
  using Show = std::function<void(const std::string&)>;

  // `client` outlives this. Makes no call before the first wait.
  ServerWait(coordinator::Client& client, std::string run_id,
             server::ShardRoutes routes, absl::Duration patience,
             SetRoutes set_routes, Show show);

  // A handler for server::CallBounds::on_waiting, called about once a second
  // during a wait. The coordinator is asked only during a wait, and no longer
  // after a final error.
  void OnWaiting(const server::TransferWait& waiting);

 private:
  void Follow(std::stop_token stop);

  coordinator::Client& client_;
  const std::string run_id_;
  const absl::Duration patience_;
  const SetRoutes set_routes_;
  const Show show_;
  rpc::WaitNotice notice_;
  Mutex mutex_;
  CondVar changed_;
  absl::Time waiting_time_ ABSL_GUARDED_BY(mutex_);  // At the last OnWaiting.
  server::ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::jthread> thread_;  // Last: it uses all the others.
};

}  // namespace atl::cli
