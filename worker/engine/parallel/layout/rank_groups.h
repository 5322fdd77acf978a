// The groups that a rank of a mesh talks in, each a stream of its own.
//
// Thread-compatible: a rank's, as its Collectives are.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/layout/mesh_options.h"

namespace atl::engine {

template <typename T>
inline constexpr collective::DataType kDataTypeOf = collective::DataType::kF32;
template <>
inline constexpr collective::DataType kDataTypeOf<double> =
    collective::DataType::kF64;

struct RankGroups {
  using Group = std::unique_ptr<collective::Collective>;

  // Over whom parameters are gathered and gradients reduced; [1] for experts.
  // With kReplicate `gathers` are null and `reductions` are all copies.
  Group gathers[2];
  Group reductions[2];
  // Copies of a shard: over dp_replicate. Null if there is but one.
  Group replicas;
  // With whom the rank shares its units; null where a size is 1.
  Group tp, cp, ep;
  // Over whom the routers of a mixture are summed: kLossGroup; null if alone.
  Group loss;
  // The ranks of embedding and head, if a tied table is on both.
  Group table;
  // The boundaries of the rank's stages, by direction; null where there is
  // none. Two ranks each, the other is 1 - rank().
  Group forward_in, forward_out, backward_in, backward_out;
};

// All ranks of `world`, which has the mesh's, make them together.
absl::StatusOr<RankGroups> MakeRankGroups(const MeshOptions& options,
                                          bool tied_table,
                                          collective::Collective& world);

}  // namespace atl::engine
