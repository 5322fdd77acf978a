// Data channels, created on first use: several to each address, each with its
// own connection. Thread-safe.

#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/rpc/channel.h"
#include "base/sync/mutex.h"
#include "grpcpp/channel.h"

namespace atl::server {

class ChannelPool {
 public:
  // `options.kind` is ignored: it is kData.
  explicit ChannelPool(rpc::ChannelOptions options);

  // The `index`-th (>= 0) channel to `address`. Errors as rpc::MakeChannel.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Get(const std::string& address,
                                                     int index);

  // Drops channels to other addresses. A connection closes with its last call.
  void KeepOnly(const std::set<std::string>& addresses);

 private:
  rpc::ChannelOptions options_;
  Mutex mutex_;
  std::map<std::pair<std::string, int>, std::shared_ptr<grpc::Channel>>
      channels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
