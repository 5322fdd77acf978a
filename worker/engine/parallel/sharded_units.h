// The parameters and gradients of a model in flat shards, gathered ahead of
// need and reduced behind it (ZeRO-3, FSDP).
//
// Thread-compatible. All ranks of the group make the same calls in the same
// order. What it holds beside the shards are `slot_count` gathered units and as
// many full gradients with their reduced shards, made once, of the longest
// unit's size: a step makes nothing and fragments nothing.
//
//   forward    Prefetch(0); for u: Prefetch(u + 1), Gather(u), compute,
//   Release(u) backward   the same from the end, with BeginGradient(u) before
//   the unit's
//              backward pass and EndGradient(u) behind it
//   after it   FinishGradients(): gradients() is the sum over ranks and passes

#ifndef WORKER_ENGINE_PARALLEL_SHARDED_UNITS_H_
#define WORKER_ENGINE_PARALLEL_SHARDED_UNITS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/flat_shard.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

class ShardedUnits {
 public:
  // `group` has shards.group_size() ranks and lives while this is made; two
  // groups are split from it, so that gathers and reductions pass each other.
  // Parameters and gradients are 0. `slot_count` >= 2.
  //
  // RESOURCE_EXHAUSTED: no memory. Errors of Collective.
  static absl::StatusOr<std::unique_ptr<ShardedUnits>> Create(
      FlatShards shards, collective::Collective& group, int slot_count = 2);

  const FlatShards& shards() const { return shards_; }
  int rank() const { return gathers_->rank(); }

  // What this rank keeps, [shards().kept_count()].
  absl::Span<float> parameters() { return parameters_; }
  absl::Span<float> gradients() { return gradients_; }

  // Starts to gather `unit`, unless that has begun.
  //
  // FAILED_PRECONDITION: every slot holds another unit that was not released.
  absl::Status Prefetch(int unit);

  // The unit's parameters, [element_count], until Release. Errors of Prefetch
  // and of Collective.
  absl::StatusOr<absl::Span<const float>> Gather(int unit);

  // Frees the slot of `unit`; does nothing if it has none. Waits for a gather
  // that still runs.
  void Release(int unit);

  // A buffer of zeros for the unit's gradient on this rank, [element_count],
  // until EndGradient. One at a time. Waits for the oldest reduction if none is
  // free.
  absl::StatusOr<absl::Span<float>> BeginGradient(int unit);

  // Starts to reduce what BeginGradient gave.
  absl::Status EndGradient();

  // Waits for all reductions. gradients() then holds what they added to it,
  // pass after pass, each a sum over ranks.
  absl::Status FinishGradients();

  // Bytes beside parameters() and gradients(); does not depend on how many
  // units there are.
  int64_t buffer_bytes() const { return buffer_bytes_; }

 private:
  struct GatherSlot {
    float* data = nullptr;  // [gathered_count_max]
    int unit = -1;          // Held, or being gathered; -1: free.
    collective::Pending pending;
  };
  struct GradientSlot {
    float* full = nullptr;     // [gathered_count_max]
    float* reduced = nullptr;  // [shard_count_max]
    int unit = -1;
    collective::Pending pending;
  };

  explicit ShardedUnits(FlatShards shards) : shards_(std::move(shards)) {}

  // Cuts all buffers from `arena`, which may measure.
  void TakeBuffers(Arena& arena, int slot_count);
  GatherSlot* SlotOf(int unit);
  // Waits for the oldest reduction and adds it.
  absl::Status SettleOldest();

  const FlatShards shards_;
  Arena arena_;
  int64_t buffer_bytes_ = 0;
  absl::Span<float> parameters_;
  absl::Span<float> gradients_;
  std::unique_ptr<collective::Collective> gathers_;
  std::unique_ptr<collective::Collective> reductions_;
  // Their calls end before the groups and the memory.
  std::vector<GatherSlot> gather_slots_;
  std::vector<GradientSlot> gradient_slots_;
  std::deque<GradientSlot*> reducing_;  // The oldest first.
  GradientSlot* open_gradient_ = nullptr;
};

}  // namespace atl::engine

#endif  // WORKER_ENGINE_PARALLEL_SHARDED_UNITS_H_
