#include "server/client/route_table.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::server {

RouteTable::RouteTable(rpc::ChannelOptions options)
    : options_(std::move(options)) {
  options_.kind = rpc::ChannelKind::kData;
  options_.peer_role = Role::kServer;
}

void RouteTable::Set(ShardRoutes routes) {
  std::set<std::string> addresses;
  for (const auto& shard : routes.shards) addresses.insert(shard.address());
  MutexLock lock(&mutex_);
  routes_ = std::move(routes);
  std::erase_if(dialers_, [&](const auto& entry) {
    return !addresses.contains(entry.first.first);
  });
}

void RouteTable::DropAll() {
  MutexLock lock(&mutex_);
  dialers_.clear();
}

absl::StatusOr<Route> RouteTable::Find(int32_t shard, int index) {
  MutexLock lock(&mutex_);
  std::string address;
  for (const auto& placement : routes_.shards) {
    if (placement.shard() == shard) address = placement.address();
  }
  if (address.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the server of shard ", shard, " is away"));
  }
  Route route;
  route.peer = absl::StrCat("shard ", shard, " at ", address);
  route.placement_epoch = routes_.placement_epoch;
  std::unique_ptr<rpc::Dialer>& dialer = dialers_[{address, index}];
  if (dialer == nullptr) {
    ASSIGN_OR_RETURN(dialer, rpc::Dialer::Make(address, options_));
  }
  route.channel = dialer->channel();
  return route;
}

}  // namespace atl::server
