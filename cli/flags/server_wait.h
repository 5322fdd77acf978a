// What a command says and does while a run's servers do not answer: names the
// one that it waits for, for how long, and how to end that; and looks whether
// it has come back elsewhere.
//
// Thread-compatible.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "coordinator/client/operator_client.h"
#include "server/client/shard_routes.h"
#include "server/client/transfer.h"

namespace atl::cli {

// --patience of a command that reads from servers; ParsePatience takes it.
void AddPatience(CLI::App& command, std::string& patience);

// "waits for server s1 at 10.0.0.5:7401, at most 1m: connection refused
// (--patience; Ctrl-C ends it)". Pure.
std::string DescribeWaiting(const server::Waiting& waiting,
                            const server::ShardRoutes& routes,
                            absl::Duration patience);

// Where the shards are that `state` is of. It has no placement's epoch.
server::ShardRoutes RoutesOfState(const v1::GetRunStateResponse& state);

class ServerWait {
 public:
  // Called from a thread of its own, with where shards are by now.
  using SetRoutes = std::function<void(const server::ShardRoutes&)>;
  // Gets the line that is to be seen.
  using Show = std::function<void(const std::string&)>;

  // `client` outlives this. Calls nobody before the first wait.
  ServerWait(coordinator::OperatorClient& client, std::string run_id,
             server::ShardRoutes routes, absl::Duration patience,
             SetRoutes set_routes, Show show);

  // For server::CallBounds::on_waiting, and all that hand it on: about once a
  // second while nothing comes. The coordinator is asked only so long, and not
  // again after an answer that asking does not change.
  void OnWaiting(const server::Waiting& waiting);

 private:
  void Follow(std::stop_token stop);

  coordinator::OperatorClient& client_;
  const std::string run_id_;
  const absl::Duration patience_;
  const SetRoutes set_routes_;
  const Show show_;
  Mutex mutex_;
  CondVar changed_;
  absl::Time waiting_time_ ABSL_GUARDED_BY(mutex_);  // Of the last OnWaiting.
  server::ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::jthread> thread_;  // Last: it uses all the others.
};

}  // namespace atl::cli
