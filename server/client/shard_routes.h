// Where the shards of a run are, as a plan says.

#ifndef SERVER_CLIENT_SHARD_ROUTES_H_
#define SERVER_CLIENT_SHARD_ROUTES_H_

#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"

namespace atl::server {

struct ShardRoutes {
  int64_t placement_epoch = 0;
  // All shards of the run, in order; one that is away has no address.
  std::vector<v1::ShardPlacement> shards;
};

// Of whatever message has both, a v1::IslandPlan for one.
template <typename Plan>
ShardRoutes ToRoutes(const Plan& plan) {
  return {plan.placement_epoch(), {plan.shards().begin(), plan.shards().end()}};
}

}  // namespace atl::server

#endif  // SERVER_CLIENT_SHARD_ROUTES_H_
