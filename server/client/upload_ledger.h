// Which blocks of a shard's part are still to be sent, when several streams
// send them.
//
// No clock, no I/O. Thread-safe.
//
// A stream takes the next blocks that nobody has sent. What the shard says that
// it misses is believed of blocks that no open stream has sent: those of the
// others are on their way. When a stream breaks, what it sent is in doubt until
// the shard is asked again. Streams ask at the same time and their answers pass
// each other, so an answer is not believed where something newer is known. So a
// block is sent twice only if it did not come, or if it was being taken in when
// the shard was asked.
//
//   unknown --missing--> due --Next--> sent by a stream --it broke--> unknown
//   unknown, due, sent --not missing--> held --missing--> due
//   sent --missing--> sent, for the stream is open
//   unknown, held --missing, but asked before it became so--> the same

#ifndef SERVER_CLIENT_UPLOAD_LEDGER_H_
#define SERVER_CLIENT_UPLOAD_LEDGER_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"

namespace atl::server {

class UploadLedger {
 public:
  // Of `blocks` (not empty), which are `byte_count` bytes of payload. Ranges
  // are cut by `unit` (>= 1) blocks, counted from the first.
  UploadLedger(IndexRange blocks, int64_t byte_count, int64_t unit = 1);

  // A stream asks the shard what it misses: the moment, for Answered.
  int64_t Asked();

  // The shard, asked at `asked`, misses `missing`: ascending ranges within the
  // part, each not empty, none overlapping. True if these are fewer blocks than
  // in the last answer.
  bool Answered(int64_t asked, absl::Span<const IndexRange> missing);

  // The next blocks for `stream` (>= 0), in one range of at most `count_max`
  // (>= 1): it ends where a unit does, is a part of one if no more are wanted,
  // or ends where what is due does. Empty if nothing is due.
  IndexRange Next(int stream, int64_t count_max);

  // `stream` has ended, and not because everything is stored.
  void Broke(int stream);

  // The shard has all of it. Nothing is due any more.
  void Stored();
  bool is_stored() const;

  // Payload bytes that the shard has or is being sent; about right until all is
  // stored.
  int64_t done_bytes() const;

 private:
  // Of a block; from 0 on the stream that has sent it.
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
  // None before it is due; an index of `states_`.
  size_t first_due_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t open_count_ ABSL_GUARDED_BY(mutex_);          // Unknown or due.
  int64_t missing_count_ ABSL_GUARDED_BY(mutex_) = -1;  // Of the last answer.
  bool stored_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::server

#endif  // SERVER_CLIENT_UPLOAD_LEDGER_H_
