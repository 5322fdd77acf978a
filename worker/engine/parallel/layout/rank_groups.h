// The groups of a rank of a mesh. Each is a stream of its own.
// Thread-compatible: they belong to the rank's thread.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/layout/mesh_options.h"

namespace atl::engine {

struct RankGroups {
  using Group = std::unique_ptr<collective::Collective>;

  // For all-gathers of parameters and reductions of gradients; [1]: experts.
  // With kReplicate `gathers` are null and `reductions` are all copies.
  Group gathers[2];
  Group reductions[2];
  // Copies of a shard, over dp_replicate. Null if there is one copy.
  Group replicas;
  // Ranks that share this rank's units; null for a size of 1.
  Group tp, cp, ep;
  // kLossGroup, which sums a mixture's router totals; null if of one rank.
  Group loss;
  // The ranks of embedding and head, if both have a tied table.
  Group table;
  // Links to the adjacent stages, by direction; null where there is no stage.
  // Each has two ranks; the other is 1 - rank().
  Group forward_in, forward_out, backward_in, backward_out;
};

// All ranks of `world`, which has the mesh's size, call it together.
absl::StatusOr<RankGroups> MakeRankGroups(const MeshOptions& options,
                                          bool tied_table,
                                          collective::Collective& world);

}  // namespace atl::engine
