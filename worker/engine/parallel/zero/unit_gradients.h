// A rank's gradients: of units, from backward passes, and of shards, summed
// over the mesh, for the optimizer.
//
// Thread-compatible. All ranks of the groups make the same calls in the same
// order: for each pass and unit Begin, compute, End; then Finish. Passes are
// summed in their order, ranks by the collective's tree. Three kinds:
//
//   bucketed   whole gradients add up over the passes; from the last pass on,
//              buckets of units are summed over all copies during the backward
//              pass (DDP)
//   scattered  the same, but each rank gets the sum of its shard alone (ZeRO-1)
//   behind     each pass's gradient is reduced to shards in the background, in
//              buffers of constant size (ZeRO-2, ZeRO-3)
//
// Copies of shards are then summed: over dp_replicate during the backward pass,
// one unit or slot after their own reduction; over the two ranks of a tied
// table at the end.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_groups.h"
#include "worker/engine/parallel/layout/rank_layout.h"

namespace atl::engine {

// Instantiated for float and double.
template <typename T>
class UnitGradients {
 public:
  virtual ~UnitGradients() = default;

  struct Buffer {
    T* data = nullptr;  // The unit's elements.
    // True: adds to the sum of earlier passes. False: overwrites.
    bool accumulate = false;
  };
  // Opens the gradient of `unit` until End. For an open unit, returns the same
  // buffer again. Errors of Collective.
  virtual absl::StatusOr<Buffer> Begin(int unit) = 0;

  // The pass has written or added the whole gradient. `is_last`: of the step.
  virtual absl::Status End(int unit, bool is_last) = 0;

  // Waits for all reductions. shard() then holds the step's gradient, and the
  // next Begin starts the next step.
  virtual absl::Status Finish() = 0;

  // This rank's shard of `span`, [shard_count]; padding is 0.
  virtual T* shard(int span) = 0;

  virtual int64_t kept_bytes() const = 0;
  virtual int64_t buffer_bytes() const = 0;
};

// As MakeWholeParameters and MakeGatheredParameters (unit_parameters.h).
// `bucket_bytes`: units are reduced together up to this size.
template <typename T>
absl::StatusOr<std::unique_ptr<UnitGradients<T>>> MakeBucketedGradients(
    const RankLayout& layout, RankGroups& groups, int64_t bucket_bytes,
    BasicOps<T>& ops);
template <typename T>
absl::StatusOr<std::unique_ptr<UnitGradients<T>>> MakeScatteredGradients(
    const RankLayout& layout, RankGroups& groups, BasicOps<T>& ops);
template <typename T>
absl::StatusOr<std::unique_ptr<UnitGradients<T>>> MakeGradientsBehind(
    const RankLayout& layout, RankGroups& groups, int slot_count,
    BasicOps<T>& ops);

}  // namespace atl::engine
