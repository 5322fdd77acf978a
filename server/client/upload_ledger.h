// Assigns the blocks of a shard's part to the streams that send them. No clock,
// no I/O. Thread-safe.
//
// A stream takes the next blocks that no stream has sent. An answer about
// missing blocks counts only for blocks that no open stream has sent: others
// may be in flight. A broken stream's blocks are unknown until the shard is
// asked again. Answers of several streams cross, so an answer is ignored where
// something newer is known. A block is sent twice only if it was lost, or was
// arriving while the shard was asked.
//
//   unknown --missing--> due --Next--> sent by a stream --it broke--> unknown
//   unknown, due, sent --not missing--> held --missing--> due
//   sent --missing--> sent, because the stream is open
//   unknown, held --missing, but asked before it became so--> the same

#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"

namespace atl::server {

class UploadLedger {
 public:
  // `blocks` (not empty) have `byte_count` bytes of payload. Ranges are cut at
  // multiples of `unit` (>= 1) blocks, counted from the first.
  UploadLedger(IndexRange blocks, int64_t byte_count, int64_t unit = 1);

  // Records that a stream asks the shard; returns the moment, for Answered.
  int64_t Asked();

  // The shard, asked at `asked`, misses `missing`: disjoint, ascending,
  // non-empty ranges of the part. True if fewer blocks than in the last answer.
  bool Answered(int64_t asked, absl::Span<const IndexRange> missing);

  // The next range for `stream` (>= 0), at most `count_max` (>= 1) blocks. It
  // ends at a unit's end, unless `count_max` or the due blocks end before.
  // Empty if nothing is due.
  IndexRange Next(int stream, int64_t count_max);

  // `stream` ended before everything was stored.
  void Broke(int stream);

  // The shard has the whole part: nothing is due.
  void Stored();
  bool is_stored() const;

  // Payload bytes that the shard has or is sent; an estimate until stored.
  int64_t done_bytes() const;

 private:
  // States of a block; >= 0: the stream that sent it.
  static constexpr int32_t kUnknown = -1;
  static constexpr int32_t kDue = -2;
  static constexpr int32_t kHeld = -3;

  struct Block {
    int32_t state = kUnknown;
    int64_t since = 0;  // The moment at which it became unknown or held.
  };

  const IndexRange blocks_;
  const int64_t byte_count_;
  const int64_t unit_;
  mutable Mutex mutex_;
  int64_t now_ ABSL_GUARDED_BY(mutex_) = 0;  // Counts what happens.
  std::vector<Block> states_ ABSL_GUARDED_BY(mutex_);
  // No block before this index of `states_` is due.
  size_t first_due_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t open_count_ ABSL_GUARDED_BY(mutex_);          // Unknown or due.
  int64_t missing_count_ ABSL_GUARDED_BY(mutex_) = -1;  // The last answer's.
  bool stored_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::server
