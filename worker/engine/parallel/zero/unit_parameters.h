// A rank's parameters: as units for computation, and as shards that the
// optimizer writes. They start at 0.
//
// Thread-compatible. All ranks of the groups make the same calls in the same
// order. Two kinds:
//
//   whole     every unit is present at all times; the optimizer's result is
//             gathered in the background while the next step begins (DDP,
//             ZeRO-1, ZeRO-2)
//   gathered  a unit is present from Gather to Release, in one of `slot_count`
//             slots of constant size, and is gathered ahead (ZeRO-3, FSDP);
//             Gather may return new contents at an old address

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

  // Starts to gather `unit` of the layout, unless it has started.
  // FAILED_PRECONDITION: every slot holds another unit that is not released.
  virtual absl::Status Prefetch(int unit) = 0;

  // The unit's parameters until Release. Errors of Prefetch and Collective.
  virtual absl::StatusOr<const T*> Gather(int unit) = 0;

  // Ends the use of `unit`; does nothing if it is not present.
  virtual void Release(int unit) = 0;

  virtual T* shard(int span) = 0;

  // Waits until no gather reads shards, so that they may be written. After a
  // step that used all units it returns immediately.
  virtual absl::Status Settle() = 0;

  // Tells that shards were written: later gathers read the new values.
  virtual absl::Status ShardsChanged() = 0;

  // Bytes of parameters that stay, and of slots.
  virtual int64_t kept_bytes() const = 0;
  virtual int64_t buffer_bytes() const = 0;
};

// All memory is that of `ops`. `layout`, `groups` and `ops` outlive it.
// `slot_count` >= 2: units present at a time. RESOURCE_EXHAUSTED: no memory.
template <typename T>
absl::StatusOr<std::unique_ptr<UnitParameters<T>>> MakeWholeParameters(
    const RankLayout& layout, RankGroups& groups, BasicOps<T>& ops);
template <typename T>
absl::StatusOr<std::unique_ptr<UnitParameters<T>>> MakeGatheredParameters(
    const RankLayout& layout, RankGroups& groups, int slot_count,
    BasicOps<T>& ops);

}  // namespace atl::engine
