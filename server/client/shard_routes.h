// The addresses of a run's shards, from a plan.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"

namespace atl::server {

struct ShardRoutes {
  int64_t placement_epoch = 0;
  // All shards, in order; an absent one has no address.
  std::vector<v1::ShardPlacement> shards;
};

// From any message with both fields, such as v1::IslandPlan.
template <typename Plan>
ShardRoutes ToRoutes(const Plan& plan) {
  return {plan.placement_epoch(), {plan.shards().begin(), plan.shards().end()}};
}

}  // namespace atl::server
