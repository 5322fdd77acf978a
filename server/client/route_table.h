// The addresses of a run's shards, which may change during calls. Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/rpc/channel.h"
#include "base/sync/mutex.h"
#include "grpcpp/channel.h"
#include "server/client/channel_pool.h"
#include "server/client/shard_routes.h"

namespace atl::server {

struct Route {
  std::string peer;  // For messages: "shard 1 at 127.0.0.1:7401".
  int64_t placement_epoch = 0;
  std::shared_ptr<grpc::Channel> channel;
};

class RouteTable {
 public:
  explicit RouteTable(const rpc::ChannelOptions& options) : pool_(options) {}

  void Set(ShardRoutes routes);

  // The route with the `index`-th connection.
  // UNAVAILABLE: the shard has no address now. Otherwise as rpc::MakeChannel.
  absl::StatusOr<Route> Find(int32_t shard, int index);

  // Closes all connections once their calls have ended.
  void DropAll() { pool_.KeepOnly({}); }

 private:
  ChannelPool pool_;
  Mutex mutex_;
  ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
