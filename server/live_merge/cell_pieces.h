// Cells of one contribution that arrive in pieces.
//
// A live merge takes contributions by cells of 64 blocks. If an island has
// several processes, each pushes its own part of the model, and a boundary
// between two parts lies within a cell. The pieces of such a cell are copied
// here until it is complete; then it is merged as if one chunk had brought it.
// Abandoned cells stay buffered until memory is needed.
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
  // Incomplete cells at a time. An island has one for each boundary between its
  // processes, and one for each stream that sends parts. Each takes up to 1 MiB
  // of the server's ReceiveBudget.
  static constexpr size_t kOpenMax = 1024;
  // A round must make progress without budget too. So a contribution that is
  // next may begin cells while the server is over budget by less than this, and
  // may always begin one cell.
  static constexpr int64_t kBeyondBytesMax = int64_t{64} << 20;

  // A cell, in one buffer.
  struct Whole {
    IndexRange blocks;
    rpc::ReceivedChunk chunk;  // Its payload is the cell's encoding.
    std::vector<BlockFact> facts;
    std::optional<ReceiveBudget::Hold> room;  // Budget for its encoding.

   private:
    friend class CellPieces;
    std::unique_ptr<char[]> bytes;
    std::vector<IndexRange> pieces;  // Blocks that have arrived.
    int64_t missing_count = 0;       // Blocks.
    bool abandoned = false;
  };

  // `encoded`: of the contribution's range; must outlive this object.
  explicit CellPieces(const EncodedRange& encoded) : encoded_(encoded) {}

  // True if the cell whose first block is `first` is incomplete here.
  bool IsOpen(int64_t first) const ABSL_LOCKS_EXCLUDED(mutex_);
  size_t open_count() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True if one of them is held over budget.
  bool HoldsBeyond() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Copies the encoding of `blocks` of cell `cell` from the next bytes of
  // `encoded`. Requires: these blocks are new. Returns the cell if it is
  // complete now, and forgets it; otherwise null. `room`: budget for the whole
  // cell, used if these blocks are the cell's first.
  //
  // RESOURCE_EXHAUSTED: the blocks are the cell's first, and `room` is empty;
  // nothing is kept.
  absl::StatusOr<std::shared_ptr<Whole>> Add(
      IndexRange cell, IndexRange blocks, rpc::PayloadReader encoded,
      absl::Span<const BlockFact> facts,
      std::optional<ReceiveBudget::Hold> room) ABSL_LOCKS_EXCLUDED(mutex_);

  // Marks the incomplete cells as abandoned; Add clears that for its cell.
  void Abandon() ABSL_LOCKS_EXCLUDED(mutex_);
  // Frees abandoned cells. Returns the blocks of them that had arrived.
  std::vector<IndexRange> GiveUpAbandoned() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const EncodedRange& encoded_;
  mutable Mutex mutex_;
  // By its first block.
  std::map<int64_t, std::shared_ptr<Whole>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
