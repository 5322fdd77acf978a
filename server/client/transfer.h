// What a push or a pull is bounded by, and what became of it.

#ifndef SERVER_CLIENT_TRANSFER_H_
#define SERVER_CLIENT_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/layout/digest.h"

namespace atl::server {

// So soon a caller hears that nothing moves.
inline constexpr absl::Duration kWaitingAfter = absl::Seconds(2);

// What a call waits for while nothing moves.
struct Waiting {
  absl::Duration span;      // Since payload has moved.
  int32_t shard = 0;        // One of which not all is there.
  absl::Status last_error;  // Of its last stream; OK: none has failed.
};

// How long a call goes on trying, and what its caller knows.
struct CallBounds {
  absl::Time deadline = absl::InfiniteFuture();
  std::stop_token stop;
  // Of an upload: payload bytes that the shards have, those included that they
  // had before; of a pull, those that have come, repeats included. About once a
  // second and at the end, from the caller's thread. May be empty.
  std::function<void(int64_t)> on_progress = nullptr;
  // DEADLINE_EXCEEDED too if no payload has moved for this long, of any shard.
  absl::Duration idle_max = absl::InfiniteDuration();
  // Called when no payload has moved for kWaitingAfter, and about once a second
  // while that lasts, from the caller's thread. May be empty.
  std::function<void(const Waiting&)> on_waiting = nullptr;
  // Of a push: nobody has pushed any of it before, so that shards miss all of
  // it. Chunks then follow the header at once, a round trip earlier. If it is
  // not so, what shards have is sent once more, as far as that is under way
  // before they say so.
  bool is_new = false;
};

// What became of one shard's part.
struct ShardOutcome {
  int32_t shard = 0;
  absl::Status status;        // OK: stored, or whole and checked.
  int attempt_count = 0;      // Streams that were opened.
  int64_t payload_bytes = 0;  // Moved, repeats included.
  // When payload last moved: was taken in, or, of an upload, handed to the
  // network. What the shard has not read then is at most a chunk and what it
  // lets be sent ahead, 256 KiB, a stream.
  absl::Time last_payload = absl::UnixEpoch();
};

// Of a pull by a process that holds a part of the model: of one shard, the sum
// over the blocks that came and what all of the shard's sum to.
struct ShardDigest {
  int32_t shard = 0;
  Digest128 came;
  Digest128 all;
};

struct TransferOutcome {
  // OK if every shard's is. Else the first that is not: the one that ended the
  // call, not those that were CANCELLED because of it.
  absl::Status status;
  // Shards with a part of the fragment, in order.
  std::vector<ShardOutcome> shards;
  // Of a pull of a part of the model, else empty: shards with blocks of it. What
  // all processes got of a shard sums to its `all`.
  std::vector<ShardDigest> digests;
};

}  // namespace atl::server

#endif  // SERVER_CLIENT_TRANSFER_H_
