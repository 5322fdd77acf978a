// The addresses of a run's shards, which may change during calls, and the data
// channels to them. Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/rpc/channel.h"
#include "base/sync/mutex.h"
#include "grpcpp/channel.h"
#include "server/client/transfer.h"

namespace atl::server {

struct Route {
  std::string peer;  // For messages: "shard 1 at 127.0.0.1:7401".
  int64_t placement_epoch = 0;
  std::shared_ptr<grpc::Channel> channel;
};

class RouteTable {
 public:
  // `options.kind` and `options.peer_role` are ignored: kData and kServer.
  explicit RouteTable(rpc::ChannelOptions options);

  // Drops channels to other addresses. A connection closes with its last call.
  void Set(ShardRoutes routes);

  // The route with the `index`-th (>= 0) channel, which is created on first
  // use and has its own connection; a new one if the TLS files change.
  // UNAVAILABLE: the shard has no address now. Otherwise as rpc::MakeChannel.
  absl::StatusOr<Route> Find(int32_t shard, int index);

  // Closes all connections once their calls have ended.
  void DropAll();

 private:
  rpc::ChannelOptions options_;
  Mutex mutex_;
  ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, int>, std::unique_ptr<rpc::Dialer>> dialers_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
