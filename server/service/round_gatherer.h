// A round of level ISLAND: contributions are merged as they arrive, and nothing
// of them is kept.
//
// The fragment's range is cut into cells of 64 blocks, which is a chunk. Cell
// by cell, contribution 0 is scaled into the new version's memory, 1 is added,
// and so on in the order of the set; the last takes the outer step with it, and
// writes the cell into the version's file. So every cell goes through the
// operations of RoundMerger in the same order, and has the same bits. A cell
// that comes before its turn waits; who has brought the one before takes it.
//
// Thread-safe.

#ifndef SERVER_SERVICE_ROUND_GATHERER_H_
#define SERVER_SERVICE_ROUND_GATHERER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync/mutex.h"
#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/shard_machine.h"
#include "server/service/merge_tile.h"
#include "server/service/view_maker.h"
#include "server/store/run_store.h"

namespace atl::server {

// Blocks of a cell: those of the largest chunk.
inline constexpr int64_t kCellBlocks = 64;

class RoundGatherer {
 public:
  // Makes the version after `set.version` of `set.fragment` in `store`.
  // Everything must outlive it.
  //
  // FAILED_PRECONDITION: the version is not here. RESOURCE_EXHAUSTED: there is
  // no room for the next one on the disk, or in memory.
  static absl::StatusOr<std::shared_ptr<RoundGatherer>> Create(
      RunStore& store, const OuterOptimizer& optimizer, const MergeRule& rule,
      const GatherSet& set);

  const GatherSet& set() const { return set_; }

  // The cells that `blocks` are; empty if they are not whole ones.
  IndexRange CellsOf(IndexRange blocks) const;
  IndexRange CellBlocks(int64_t cell) const;

  // Takes the encoding of a cell of contribution `index`, checked by the
  // caller. Returns true if it has been taken in. Else its turn has not come:
  // `taken` is called once it has, from any thread, and until then `encoded`
  // must stay. A cell of a contribution is offered once.
  bool Offer(int index, int64_t cell, const char* encoded,
             std::function<void()> taken);

  // The version is whole: writes its header and publishes it in the store, not
  // committed. Requires: all cells of all contributions were taken in.
  //
  // Errors of writing the version's file.
  absl::StatusOr<PreparedFact> Publish(int64_t attempt);

 private:
  struct Waiting {
    const char* encoded = nullptr;
    std::function<void()> taken;
  };
  struct Cell {
    int next = 0;  // The contribution whose turn it is.
    bool busy = false;
    std::map<int, Waiting> waiting;
  };

  RoundGatherer(RunStore& store, const OuterOptimizer& optimizer,
                const MergeRule& rule, const GatherSet& set, HeldVersion from,
                std::shared_ptr<VersionFile> to,
                std::unique_ptr<ViewMaker> view);

  // Adds contribution `index`; the last takes the step.
  void Take(int index, int64_t cell, const char* encoded);
  void TakeLast(int64_t cell, const char* encoded);
  // Keeps an error of the tile that begins with `block`, for Publish.
  void Note(int64_t block, const absl::Status& status);

  RunStore& store_;
  const OuterOptimizer& optimizer_;
  const MergeRule& rule_;
  const GatherSet set_;
  const ShardRange& range_;
  const EncodedRange& encoded_;
  const HeldVersion from_;
  const std::shared_ptr<VersionFile> to_;
  const std::unique_ptr<ViewMaker> view_;  // Null if the run has no view.

  mutable Mutex mutex_;
  std::vector<Cell> cells_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<TileBuffers>> free_buffers_
      ABSL_GUARDED_BY(mutex_);
  // One a tile; each is written once, by who holds its cell.
  std::vector<TileResult> results_;
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_ROUND_GATHERER_H_
