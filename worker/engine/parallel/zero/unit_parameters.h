// A rank's parameters, as units that it computes with and as shards that its
// optimizer writes.
//
// Thread-compatible. All ranks of the groups make the same calls in the same
// order. Two ways:
//
//   whole     every unit is there at all times; what the optimizer wrote is
//             gathered behind it, while the next step begins (DDP, ZeRO-1, -2)
//   gathered  a unit is there from Gather to Release, in one of so many slots
//             of constant size, gathered ahead of need (ZeRO-3, FSDP)
//
// Parameters start at 0.

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
class UnitParameters {
 public:
  virtual ~UnitParameters() = default;

  // Starts to gather `unit` of the layout, unless that has begun.
  //
  // FAILED_PRECONDITION: every slot holds another unit that was not released.
  virtual absl::Status Prefetch(int unit) = 0;

  // The unit's parameters, until Release. Errors of Prefetch and of Collective.
  virtual absl::StatusOr<const T*> Gather(int unit) = 0;

  // Ends the use of `unit`; does nothing if it is not there.
  virtual void Release(int unit) = 0;

  // This rank's shard of `span`, [shard_count].
  virtual T* shard(int span) = 0;

  // Waits until shards may be written: nothing is being gathered. (After a step
  // that used all units, nothing is.)
  virtual absl::Status Settle() = 0;

  // Shards were written: what is gathered from now on has it.
  virtual absl::Status ShardsChanged() = 0;

  // A unit may lie where another was: Gather gives new contents.
  virtual bool reuses_memory() const = 0;

  // Of parameters that are kept, and of slots.
  virtual int64_t kept_bytes() const = 0;
  virtual int64_t buffer_bytes() const = 0;
};

// All lies in memory of `ops`. `layout`, `groups` and `ops` outlive it.
// `slot_count` >= 2: units that are gathered at a time.
//
// RESOURCE_EXHAUSTED: no memory.
template <typename T>
absl::StatusOr<std::unique_ptr<UnitParameters<T>>> MakeWholeParameters(
    const RankLayout& layout, RankGroups& groups, BasicOps<T>& ops);
template <typename T>
absl::StatusOr<std::unique_ptr<UnitParameters<T>>> MakeGatheredParameters(
    const RankLayout& layout, RankGroups& groups, int slot_count,
    BasicOps<T>& ops);

}  // namespace atl::engine
