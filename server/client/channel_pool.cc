#include "server/client/channel_pool.h"

#include <utility>

#include "base/status/status_macros.h"

namespace atl::server {

ChannelPool::ChannelPool(rpc::ChannelOptions options)
    : options_(std::move(options)) {
  options_.kind = rpc::ChannelKind::kData;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelPool::Get(
    const std::string& address, int index) {
  MutexLock lock(&mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[{address, index}];
  if (channel == nullptr) {
    auto made = rpc::MakeChannel(address, options_);
    if (!made.ok()) {
      channels_.erase({address, index});
      return made.status();
    }
    channel = *std::move(made);
  }
  return channel;
}

void ChannelPool::KeepOnly(const std::set<std::string>& addresses) {
  MutexLock lock(&mutex_);
  for (auto entry = channels_.begin(); entry != channels_.end();) {
    entry = addresses.contains(entry->first.first) ? std::next(entry)
                                                   : channels_.erase(entry);
  }
}

}  // namespace atl::server
