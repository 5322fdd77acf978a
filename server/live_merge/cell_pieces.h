// Cells of one contribution that come in pieces.
//
// At level ISLAND a contribution is merged by cells of 64 blocks. An island of
// several processes pushes from each what that holds of the model, and where
// two meet lies within a cell. Its pieces are copied here until it is whole;
// then it is as if it had come in one chunk. What of it nobody goes on with
// stays, until somebody else needs its room: then it is given up.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/layout/layout.h"
#include "base/rpc/chunk_codec.h"
#include "base/sync/mutex.h"
#include "server/live_merge/receive_budget.h"
#include "server/store/contribution.h"
#include "server/store/encoded_range.h"

namespace atl::server {

class CellPieces {
 public:
  // Cells that are begun and not whole, at a time: an island has one less than
  // processes, and one a stream that sends parts. Each takes up to 1 MiB, which
  // is a part of the server's ReceiveBudget.
  static constexpr size_t kOpenMax = 1024;
  // Beyond that bound, so that a round goes on, contributions that are next
  // begin cells while the server has fewer bytes beyond it than these, and one
  // cell each whatever it has.
  static constexpr int64_t kOverBudgetBytesMax = int64_t{64} << 20;

  // A cell, in one piece.
  struct Whole {
    IndexRange blocks;
    rpc::ReceivedChunk chunk;  // Its payload is the cell's encoding.
    std::vector<BlockFact> facts;
    std::optional<ReceiveBudget::Hold> hold;  // For its encoding.

   private:
    friend class CellPieces;
    std::unique_ptr<char[]> bytes;
    std::vector<IndexRange> pieces;  // That have come.
    int64_t missing_count = 0;       // Blocks.
    bool abandoned = false;
  };

  // `encoded`, of the contribution's range, must outlive it.
  explicit CellPieces(const EncodedRange& encoded) : encoded_(encoded) {}

  // True if the cell that begins with `first` is begun.
  bool IsOpen(int64_t first) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Cells that are begun.
  size_t open_count() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True if one of them is beyond the bound of ReceiveBudget.
  bool HoldsBeyond() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Copies the encoding of `blocks` of cell `cell`, which nobody has brought
  // before: what `encoded` reads next. Returns the cell if it is whole now, and
  // forgets it; else null. `hold` is for the encoding of the cell; it is kept
  // if this begins it.
  //
  // RESOURCE_EXHAUSTED: this would begin it, without `hold`; nothing is kept.
  absl::StatusOr<std::shared_ptr<Whole>> Add(
      IndexRange cell, IndexRange blocks, rpc::PayloadReader encoded,
      absl::Span<const BlockFact> facts,
      std::optional<ReceiveBudget::Hold> hold) ABSL_LOCKS_EXCLUDED(mutex_);

  // Nobody goes on with the cells that are begun, until something is added.
  void Abandon() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives up cells with which nobody goes on; returns the blocks of them that
  // had come.
  std::vector<IndexRange> GiveUpAbandoned() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const EncodedRange& encoded_;
  mutable Mutex mutex_;
  // By its first block.
  std::map<int64_t, std::shared_ptr<Whole>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
