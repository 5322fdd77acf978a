// Moves tensors between one process and all shards of one run.
//
// Push cuts a fragment by the layout, streams each shard its blocks in parallel
// and without a copy, and returns when every shard has answered `stored`. Pull
// is the reverse, with all checksums and digests checked. Both resume after a
// break.
//
// Shapes: a fragment's elements are f32, [layout.fragment_element_count(f)], in
// flat order (base/layout/layout.h); encoded as in
// base/layout/encoded_layout.h.
//
// Thread-safe: fragments may move concurrently, each call on a thread. Calls
// block.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/rpc/channel.h"
#include "base/rpc/retry.h"
#include "server/client/bandwidth.h"
#include "server/client/stripes.h"
#include "server/client/transfer.h"

namespace atl::server {

struct PushIdentity {
  std::string island_id;
  int64_t island_epoch = 0;
  std::string session_secret;  // Raw bytes, not hex.
};

// Totals since the client was made.
struct TransferCounters {
  int64_t sent_payload_bytes = 0;
  int64_t received_payload_bytes = 0;
};

class ParameterClient {
 public:
  virtual ~ParameterClient() = default;

  // Calls in progress use the new routes from their next attempt on.
  virtual void SetRoutes(ShardRoutes routes) = 0;

  // Sets the identity for pushes that start from now on.
  virtual void SetIdentity(PushIdentity identity) = 0;

  // Pushes contribution `info` to every shard that holds a part of its
  // fragment. The caller chooses the digest that names the bytes
  // (base/layout/digest.h). `encoded`, by info.codec, is not read after the
  // call returns. Retries UNAVAILABLE, RESOURCE_EXHAUSTED, DATA_LOSS,
  // FAILED_PRECONDITION and NOT_FOUND (a server whose plan is behind) until the
  // deadline (DEADLINE_EXCEEDED, with the last error in the message) or the
  // stop (CANCELLED). Returns at once, and cancels the other shards:
  //   INVALID_ARGUMENT: the contribution is refused, here or by a shard.
  //   ABORTED: an epoch or the placement is out of date; fetch the plan.
  //   FAILED_PRECONDITION with OTHER_RUN, after about ten seconds: the shard
  //     holds another run with this run_id.
  //   UNAUTHENTICATED, PERMISSION_DENIED, ...: as the shard says.
  // Whatever the outcome, shards keep what they have stored.
  virtual TransferOutcome Push(const v1::ContributionInfo& info,
                               absl::Span<const char> encoded,
                               const CallBounds& bounds) = 0;

  // Pulls `fragment` at exactly `version` into `out`. `expected`: the digest
  // that the fragment must have (FragmentVersion.digest). Retries as Push.
  // Returns at once:
  //   OUT_OF_RANGE: the version is no longer held; fetch the plan.
  //   ABORTED, INVALID_ARGUMENT, ...: as the shard says.
  //   DATA_LOSS: every part is right, but the whole does not match `expected`.
  // After an error `out` holds no defined values.
  virtual TransferOutcome Pull(int32_t fragment, int64_t version,
                               const std::optional<Digest128>& expected,
                               absl::Span<float> out,
                               const CallBounds& bounds) = 0;

  // Pulls the replica of `fragment` at exactly `version`: what islands hold
  // (base/layout/exchange.h); theta itself in runs without a replica.
  // `from_version`: the version of the replica in `out` before the call; -1:
  // none. Shards send the deltas from there, or the whole replica. The result
  // equals the shard's replica bit for bit; its digests are checked.
  // Errors and retries as Pull. If a delta cannot be decoded, or leads to
  // non-finite values, the client asks for the whole replica. After an error
  // `out` holds no defined values.
  virtual TransferOutcome PullReplica(int32_t fragment, int64_t version,
                                      int64_t from_version,
                                      absl::Span<float> out,
                                      const CallBounds& bounds) = 0;

  // Pushes version 0, if the run's spec says `import`. Errors and retries as
  // Push.
  virtual TransferOutcome Import(int32_t fragment,
                                 absl::Span<const float> elements,
                                 const CallBounds& bounds) = 0;

  virtual TransferCounters counters() const = 0;
};

struct ParameterClientOptions {
  std::string run_id;
  std::string run_uid;      // Run.run_uid; empty: servers do not check it.
  int32_t shard_count = 0;  // RunSpec.server_count, >= 1.
  rpc::ChannelOptions channel;
  BandwidthCaps caps;  // For all calls together.
  // Level ISLAND: servers merge units of codec::kChunkBlocksUnit blocks, so
  // chunks are whole units, or parts of one if the link or the cap is too slow.
  bool whole_units = false;
  // Streams of a large call, >= 1, each with a connection (stripes.h); at least
  // one a shard.
  int stream_count = kDefaultStreamCount;
  // A plan reaches islands and servers at about the same time, so the first
  // answer is often "not here yet" for a millisecond or two.
  rpc::RetryPolicy retry = {.initial_delay = absl::Milliseconds(2),
                            .max_delay = absl::Seconds(2)};
  uint64_t seed = rpc::RandomSeed();  // For the jitter of retries.
  // A stream that moves nothing for this long is cancelled and retried.
  absl::Duration stall_timeout = absl::Seconds(60);
  // For one process of several that form an island: its blocks by fragment,
  // ascending, not touching; empty: all. Spans in calls have these elements
  // only, back to back. A push ends when the shards of these blocks are
  // complete, by any process. A pull returns sums for the caller to add up
  // (TransferOutcome.digests), and Pull ignores `expected`.
  std::vector<std::vector<IndexRange>> held;
};

// The options that `run` decides: its ids, and what its spec says.
ParameterClientOptions MakeRunOptions(const v1::Run& run);

// A client with its own connections; dials on the first call. `layout` must
// outlive it. INVALID_ARGUMENT: an option is wrong.
absl::StatusOr<std::unique_ptr<ParameterClient>> MakeParameterClient(
    const ParameterClientOptions& options, const RunLayout& layout);

}  // namespace atl::server
