// A round of level ISLAND: contributions are merged as they arrive, and nothing
// of them is kept.
//
// The fragment's range is cut into cells of 64 blocks, which is a chunk, unless
// several processes bring what they have of it (cell_pieces.h). A cell waits,
// where it was received, until all contributions have brought it; who brings
// the last one merges them in the order of the set, takes the outer step, and
// writes the cell into the version's memory and file, tile by tile while it is
// in cache. So every cell goes through the operations of RoundMerger in the
// same order, and has the same bits.
//
// Streams send no more while cells of theirs wait, so that they could all wait
// for each other. If every contribution does, cells are folded: those that have
// come are added, as far as they are next in the order, to a sum in memory of
// the cell's own, and wait no more. Contribution 0 is always next, so one of
// them goes on.
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

// Blocks of a cell: those of the largest chunk.
inline constexpr int64_t kCellBlocks = 64;

class LiveMerger : public FoldingSet {
 public:
  // Makes the version after `set.version` of `set.fragment` in `store`.
  // Everything must outlive it.
  //
  // FAILED_PRECONDITION: the version is not here. RESOURCE_EXHAUSTED: there is
  // no room for the next one on the disk.
  static absl::StatusOr<std::shared_ptr<LiveMerger>> Create(
      RunStore& store, const OuterOptimizer& optimizer, const MergeRule& rule,
      const LiveSet& set);

  // Gives up the files of what was not prepared.
  ~LiveMerger() override;

  const LiveSet& set() const { return set_; }

  // The cells that `blocks` are in, the first and the last perhaps in part.
  IndexRange ToCells(IndexRange blocks) const;
  IndexRange CellBlocks(int64_t cell) const;
  // True if one of them is in `blocks` whole.
  bool HasWholeCell(IndexRange blocks) const;
  // Where parts of cells of contribution `index` become cells.
  CellPieces& pieces(int index) { return pieces_[index]; }

  // Takes the encoding of a cell of contribution `index`, checked by the
  // caller: what `encoded` reads next. `taken` is called once it has been taken
  // in, from any thread, perhaps before this returns; until then the bytes must
  // stay. A cell of a contribution is offered once. `at_once`: it is folded if
  // it can be, for there is no room for it to wait.
  void Offer(int index, int64_t cell, rpc::PayloadReader encoded,
             std::function<void()> taken, bool at_once = false);

  // The first contribution that has not offered all its cells, or the last one:
  // each cell of it, and of those before, can be folded at once. It never
  // falls.
  int next() const;
  bool FoldWaiting() override;

  // A stream that brings cells of contribution `index` has begun, or has ended;
  // `crowded`: it is (it was) not read, for cells of its own wait. From within
  // `taken` only Crowd(index, -1) may be called.
  void Join(int index);
  void Leave(int index, bool crowded);
  // `by` is 1 when a stream becomes crowded and -1 when it no longer is.
  void Crowd(int index, int by);

  // The version is whole: writes its header and publishes it in the store, not
  // committed. Requires: all cells of all contributions were taken in.
  //
  // Errors of writing the version's file, or its sum's.
  absl::StatusOr<PreparedFact> Publish(int64_t attempt);

  // Makes the versions again that an earlier process had prepared. Those whose
  // sum is damaged, or that do not come out as they were, are given up: their
  // islands push again.
  //
  // Whatever else keeps one from being made: it is as it was, for another
  // start.
  static absl::Status MakeAgain(RunStore& store,
                                const OuterOptimizer& optimizer);

 private:
  struct Waiting {
    rpc::PayloadReader encoded;
    std::function<void()> taken;
  };
  struct Cell {
    int next = 0;  // The contribution whose turn it is.
    bool busy = false;
    std::map<int, Waiting> waiting;
    // Of what was folded; only who is busy with the cell touches it.
    std::vector<float> sum;
  };
  // Where the cells of a contribution come from.
  struct Source {
    int64_t offered_count = 0;  // Cells.
    int stream_count = 0;
    int crowded_count = 0;  // Of its streams.
  };

  LiveMerger(RunStore& store, const OuterOptimizer& optimizer,
             const MergeRule& rule, const LiveSet& set, HeldVersion from,
             std::shared_ptr<VersionFile> to, std::shared_ptr<VersionFile> sum,
             std::unique_ptr<ReplicaMaker> replica);

  // One of MakeAgain's. Returns why it is to be given up; nothing if it is
  // made.
  static absl::StatusOr<std::string> MakeOneAgain(
      RunStore& store, const OuterOptimizer& optimizer,
      const PreparedFact& prepared, const VersionFile& sum);

  // Takes a cell in if it is whole; if `fold`, what there is of it. True if it
  // has taken in anything.
  bool Advance(int64_t cell, bool fold);
  // Folds, as long as all contributions wait for each other.
  void FoldIfStuck();
  bool Stuck() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The cells of contributions `first` and those after it: to `sum`, which has
  // those before, or, if the last one is among them, all the way.
  void Fold(int64_t cell, int first, std::vector<Waiting>& encoded,
            std::vector<float>& sum);
  void Finish(int64_t cell, int first, std::vector<Waiting>& encoded,
              const std::vector<float>& sum);
  // Adds `blocks` of them, which are what they read next, to `sum`.
  absl::Status Add(IndexRange blocks, int first, std::vector<Waiting>& encoded,
                   TileBuffers& buffers, float* sum);
  // Keeps an error of the tile that begins with `block`, for Publish.
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
  // Where the merged gradient is kept until `to_` is durable; null if `to_` is
  // written at once.
  const std::shared_ptr<VersionFile> sum_;
  const std::unique_ptr<ReplicaMaker> replica_;  // Null if the run has no view.
  std::deque<CellPieces> pieces_;                // By contribution.

  mutable Mutex mutex_;
  std::vector<Cell> cells_ ABSL_GUARDED_BY(mutex_);
  std::vector<Source> sources_ ABSL_GUARDED_BY(mutex_);  // By contribution.
  std::vector<std::unique_ptr<TileBuffers>> free_buffers_
      ABSL_GUARDED_BY(mutex_);
  // One a tile; each is written once, by who holds its cell.
  std::vector<TileResult> results_;
};

}  // namespace atl::server
