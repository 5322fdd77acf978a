// The addresses of a run's shards; the bounds and the outcome of a push or a
// pull.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "base/layout/digest.h"

namespace atl::server {

struct ShardRoutes {
  int64_t placement_epoch = 0;
  // All shards, in order; an absent one has no address.
  std::vector<v1::ShardPlacement> shards;
};

// From any message with both fields, such as v1::IslandPlan.
template <typename Plan>
ShardRoutes ToRoutes(const Plan& plan) {
  return {plan.placement_epoch(), {plan.shards().begin(), plan.shards().end()}};
}

// Idle time before the caller's on_waiting is called.
inline constexpr absl::Duration kWaitingAfter = absl::Seconds(2);

struct TransferWait {
  absl::Duration span;      // Since payload last moved.
  int32_t shard = 0;        // A shard that is not complete.
  absl::Status last_error;  // Its last stream's; OK: no error.
};

struct CallBounds {
  absl::Time deadline = absl::InfiniteFuture();
  std::stop_token stop;
  // Upload: payload bytes that the shards have. Pull: bytes received, repeats
  // included. About once a second and at the end, on the caller's thread.
  std::function<void(int64_t)> on_progress = nullptr;
  // Also DEADLINE_EXCEEDED if no shard's payload has moved for this long.
  absl::Duration idle_max = absl::InfiniteDuration();
  // Called after no payload has moved for kWaitingAfter, then about once a
  // second, on the caller's thread. May be empty.
  std::function<void(const TransferWait&)> on_waiting = nullptr;
  // A push that no shard has seen: its chunks follow the header at once, which
  // saves a round trip. Until the answer comes, blocks that shards have are
  // sent too.
  bool is_new = false;
  // A pull is of this run_epoch: one version has other values after a restore.
  // 0: of the server's.
  int64_t run_epoch = 0;
};

struct ShardOutcome {
  int32_t shard = 0;
  absl::Status status;        // OK: stored, or complete and checked.
  int attempt_count = 0;      // Streams that were opened.
  int64_t payload_bytes = 0;  // Moved, repeats included.
  // When payload was last received or, in an upload, handed to the network. The
  // shard then lacks at most a chunk and a window of 256 KiB a stream.
  absl::Time last_payload = absl::UnixEpoch();
};

// For a pull by a process that holds a part of the model: the digest of one
// shard's blocks that came, and of all of the shard's blocks.
struct ShardDigest {
  int32_t shard = 0;
  Digest128 came;
  Digest128 all;
};

struct TransferOutcome {
  // OK if every shard's is. Otherwise the error that ended the call.
  absl::Status status;
  // Shards with a part of the fragment, in order.
  std::vector<ShardOutcome> shards;
  // Only for a pull of a part of the model: the shards with its blocks. For
  // each shard, the `came` of all processes sum to `all`.
  std::vector<ShardDigest> digests;
};

}  // namespace atl::server
