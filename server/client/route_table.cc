#include "server/client/route_table.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::server {

void RouteTable::Set(ShardRoutes routes) {
  std::set<std::string> addresses;
  for (const auto& shard : routes.shards) addresses.insert(shard.address());
  {
    MutexLock lock(&mutex_);
    routes_ = std::move(routes);
  }
  pool_.KeepOnly(addresses);
}

absl::StatusOr<Route> RouteTable::Find(int32_t shard, int index) {
  Route route;
  std::string address;
  {
    MutexLock lock(&mutex_);
    for (const auto& placement : routes_.shards) {
      if (placement.shard() == shard) address = placement.address();
    }
    route.placement_epoch = routes_.placement_epoch;
  }
  if (address.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the server of shard ", shard, " is away"));
  }
  route.peer = absl::StrCat("shard ", shard, " at ", address);
  ASSIGN_OR_RETURN(route.channel, pool_.Get(address, index));
  return route;
}

}  // namespace atl::server
