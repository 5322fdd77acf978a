// A rank's gradients: of units, as backward passes give them, and of shards,
// summed over the mesh, as its optimizer takes them.
//
// Thread-compatible. All ranks of the groups make the same calls in the same
// order. Sums over passes are added in the order of passes, sums over ranks are
// the collective's tree. Three ways:
//
//   bucketed   whole gradients add up over the passes; with the last pass, all
//              copies of a bucket of units are summed while the backward pass
//              goes on (DDP)
//   scattered  the same, and each rank gets the sum of its shard alone (ZeRO-1)
//   behind     each pass is reduced to shards behind it, out of constant
//              buffers (ZeRO-2, ZeRO-3)
//
// Where there are copies of shards their sums follow: over dp_replicate while
// the backward pass goes on, one unit or a slot behind its own reduction; over
// the two ranks of a tied table at the end.
//
//   a step: for each pass and unit Begin, compute, End; then Finish

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
    // Holds the sum of earlier passes, to be added to; else anything, to be
    // written.
    bool accumulate = false;
  };
  // Opens the gradient of `unit`, until End. Of a unit that is open, the same
  // again. Errors of Collective.
  virtual absl::StatusOr<Buffer> Begin(int unit) = 0;

  // The pass has written or added all of it. `is_last`: of the step.
  virtual absl::Status End(int unit, bool is_last) = 0;

  // Waits for all reductions. shard() then holds the step's gradient, and the
  // next Begin is of the next step.
  virtual absl::Status Finish() = 0;

  // This rank's shard of `span`, [shard_count]; 0 where it pads.
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
