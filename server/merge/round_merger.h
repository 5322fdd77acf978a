// Makes versions, and replicas (server/core/replica.h) if the run has one:
// version 0 from the generator or an import, v + 1 from v and a sealed round.
//
// Works tile by tile, from the contributions' files and the old version's image
// or file into the next version's. So its memory depends neither on the size of
// the shard nor on the number of contributions, and a tile's bits depend
// neither on the threads nor on other tiles.
//
// Thread-compatible: one call at a time, because calls share the tile buffers.
// Blocks for as long as the disk and the arithmetic take.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/plan.pb.h"
#include "base/layout/digest.h"
#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/shard_machine.h"
#include "server/merge/merge_tile.h"
#include "server/merge/replica_maker.h"
#include "server/merge/work_queue.h"
#include "server/store/run_store.h"

namespace atl::server {

class RoundMerger {
 public:
  // `pool` must outlive it.
  explicit RoundMerger(TilePool& pool);

  // Makes version 0 of `fragment`, from the generator or the stored import, and
  // publishes it in `store`, not durable.
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: the import is damaged.
  // FAILED_PRECONDITION: there is no import yet.
  absl::StatusOr<Version0Fact> MakeVersion0(RunStore& store,
                                            const OuterOptimizer& optimizer,
                                            int32_t fragment);

  // Merges `seal` into version seal.version + 1 and publishes that in `store`,
  // neither durable nor committed. RESOURCE_EXHAUSTED: the disk is full.
  // DATA_LOSS: a file is damaged; the message names it. FAILED_PRECONDITION:
  // the version or a contribution is not here.
  absl::StatusOr<PreparedFact> Merge(RunStore& store,
                                     const OuterOptimizer& optimizer,
                                     const MergeRule& rule,
                                     const v1::Seal& seal);

  // The statistics of `seal`'s contributions here, for its verdict. DATA_LOSS:
  // a file is damaged. FAILED_PRECONDITION: a contribution is not here.
  absl::StatusOr<MeasuredFact> Measure(RunStore& store, const MergeRule& rule,
                                       const v1::Seal& seal);

 private:
  struct Round;

  TileResult MergeTile(const Round& round, IndexRange blocks,
                       TileBuffers& buffers) const;

  TilePool& pool_;
  std::vector<TileBuffers> buffers_;  // One a thread.
};

}  // namespace atl::server
