// Merges a round at durability `island`: contributions are merged as they
// arrive and are not stored.
//
// The fragment's range is cut into cells of 64 blocks. A chunk brings a cell;
// if several processes hold parts of a cell, cell_pieces.h puts them together.
// A cell waits in its receive buffer until all contributions have brought it.
// The caller with the last one merges them in the order of the set, takes the
// outer step, and writes the cell to the version's memory and file, tile by
// tile while it is in cache. Each element goes through the operations of
// RoundMerger in the same order, so the result has the same bits.
//
// A stream with too many waiting cells is not read, so all streams could wait
// for each other. If all contributions wait, cells are folded: the
// contributions that have arrived and are next in the order are added to a sum
// of the cell, and their buffers are freed. Contribution 0 can always be
// folded, so at least one contribution makes progress.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/rpc/chunk_codec.h"
#include "base/sync/mutex.h"
#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/shard_machine.h"
#include "server/live_merge/cell_pieces.h"
#include "server/live_merge/receive_budget.h"
#include "server/merge/merge_tile.h"
#include "server/merge/replica_maker.h"
#include "server/store/run_store.h"

namespace atl::server {

// Blocks of a cell, as many as the largest chunk has.
inline constexpr int64_t kCellBlocks = 64;

class LiveMerger : public FoldingSet {
 public:
  // Makes version set.version + 1 of `set.fragment` in `store`. The arguments
  // must outlive it; `set` is copied.
  //
  // FAILED_PRECONDITION: version set.version is not held, or `rule` needs all
  // contributions at once. RESOURCE_EXHAUSTED: the disk is full.
  static absl::StatusOr<std::shared_ptr<LiveMerger>> Create(
      RunStore& store, const OuterOptimizer& optimizer, const MergeRule& rule,
      const LiveSet& set);

  // Removes the version's files unless they are published.
  ~LiveMerger() override;

  const LiveSet& set() const { return set_; }

  // The cells that contain `blocks`; the first and the last perhaps in part.
  IndexRange ToCells(IndexRange blocks) const;
  IndexRange CellBlocks(int64_t cell) const;
  // True if `blocks` contain a whole cell.
  bool HasWholeCell(IndexRange blocks) const;
  // Puts parts of cells of contribution `index` together.
  CellPieces& pieces(int index) { return pieces_[index]; }

  // Takes the encoding of a cell of contribution `index`, the next bytes of
  // `encoded`, which the caller has checked. Calls `taken` once the cell is
  // merged or folded: from any thread, perhaps before Offer returns. The bytes
  // must stay valid until then. `at_once`: fold the cell now if possible,
  // because no memory is left for it to wait. Requires: the cell of this
  // contribution was not offered before.
  void Offer(int index, int64_t cell, rpc::PayloadReader encoded,
             std::function<void()> taken, bool at_once = false);

  // Index of the first contribution that has not offered all its cells, or of
  // the last one. Cells of it, and of those before it, can be folded at once.
  // Never decreases.
  int next() const;
  bool FoldWaiting() override;

  // A stream with cells of contribution `index` has begun, or has ended. A
  // stream is crowded while it is not read because its own cells wait;
  // `crowded`: it was at its end. `taken` may call Crowd(index, -1) only.
  void Join(int index);
  void Leave(int index, bool crowded);
  // `by` is 1 when a stream becomes crowded and -1 when it no longer is.
  void Crowd(int index, int by);

  // Publishes the complete version in the store, not yet committed. Writes the
  // header of its sum, or of its own file if it has no sum.
  //
  // INTERNAL: a cell is not merged. UNAVAILABLE: the disk was full during the
  // merge, and contributions must be pushed again. Else errors of the files.
  absl::StatusOr<PreparedFact> Publish(int64_t attempt);

  // Makes the versions again that an earlier process had prepared. A version
  // whose sum is damaged, or whose digest differs, is given up: its islands
  // push again.
  //
  // After an error the prepared versions stay as they are, for the next start.
  static absl::Status MakeAgain(RunStore& store,
                                const OuterOptimizer& optimizer);

 private:
  struct Waiting {
    rpc::PayloadReader encoded;
    std::function<void()> taken;
  };
  struct Cell {
    int next = 0;  // The next contribution to merge.
    bool busy = false;
    std::map<int, Waiting> waiting;
    // The sum of folded contributions; belongs to the thread that set `busy`.
    std::vector<float> sum;
  };
  // The streams of a contribution.
  struct Source {
    int64_t offered_count = 0;  // Offered cells.
    int stream_count = 0;
    int crowded_count = 0;  // How many of the streams are crowded.
  };

  LiveMerger(RunStore& store, const OuterOptimizer& optimizer,
             const MergeRule& rule, const LiveSet& set, HeldVersion from,
             std::shared_ptr<VersionFile> to, std::shared_ptr<VersionFile> sum,
             std::unique_ptr<ReplicaMaker> replica);

  // Makes one version for MakeAgain. Returns why it must be given up; empty if
  // it was made.
  static absl::StatusOr<std::string> MakeOneAgain(
      RunStore& store, const OuterOptimizer& optimizer,
      const PreparedFact& prepared, const VersionFile& sum);

  // Merges a cell if all contributions have brought it; if `fold`, folds those
  // that are next. True if it merged or folded any.
  bool Advance(int64_t cell, bool fold);
  // Folds while all contributions wait for each other.
  void FoldIfStuck();
  bool Stuck() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `encoded`: the cell of contribution `first` and of those after it. `sum`
  // has those before. Fold adds them to `sum`; Finish also takes the outer
  // step.
  void Fold(int64_t cell, int first, std::vector<Waiting>& encoded,
            std::vector<float>& sum);
  void Finish(int64_t cell, int first, std::vector<Waiting>& encoded,
              const std::vector<float>& sum);
  // Adds `blocks` of each, the next bytes of their readers, to `sum`.
  absl::Status Add(IndexRange blocks, int first, std::vector<Waiting>& encoded,
                   TileBuffers& buffers, float* sum);
  // Keeps an error of the tile of `block`, for Publish.
  void Note(int64_t block, const absl::Status& status);

  std::unique_ptr<TileBuffers> TakeBuffers();
  void GiveBuffers(std::unique_ptr<TileBuffers> buffers);

  RunStore& store_;
  const OuterOptimizer& optimizer_;
  const MergeRule& rule_;
  const LiveSet set_;
  const ShardRange& range_;
  const EncodedRange& encoded_;
  const HeldVersion from_;
  const std::shared_ptr<VersionFile> to_;
  // Keeps the merged gradient until `to_` is durable; null if the merge writes
  // `to_` into its file immediately.
  const std::shared_ptr<VersionFile> sum_;
  const std::unique_ptr<ReplicaMaker> replica_;  // Null without replicas.
  std::deque<CellPieces> pieces_;                // By contribution.

  mutable Mutex mutex_;
  std::vector<Cell> cells_ ABSL_GUARDED_BY(mutex_);
  std::vector<Source> sources_ ABSL_GUARDED_BY(mutex_);  // By contribution.
  std::vector<std::unique_ptr<TileBuffers>> free_buffers_
      ABSL_GUARDED_BY(mutex_);
  // By tile; written by the thread that holds its cell.
  std::vector<TileResult> results_;
};

}  // namespace atl::server
