// Moves tensors between one process and all shards of one run.
//
// Push cuts a fragment by the layout, streams each shard its blocks, in
// parallel, from the caller's memory without a copy, and comes back when every
// shard has said `stored`. Pull is the other way round, and checks every
// checksum and digest. Both go on where they stopped when a stream breaks, for
// as long as the caller lets them.
//
// Shapes: a fragment's elements are f32, [layout.fragment_element_count(f)], in
// the fragment's flat order (base/layout/layout.h); encoded, they lie as
// base/layout/encoded_layout.h says.
//
// Thread-safe: several fragments may move at once, each call from a thread of
// its own. Calls block.

#ifndef SERVER_CLIENT_PARAMETER_CLIENT_H_
#define SERVER_CLIENT_PARAMETER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/rpc/channel.h"
#include "base/rpc/retry.h"
#include "server/client/bandwidth.h"
#include "server/client/shard_routes.h"
#include "server/client/stripes.h"
#include "server/client/transfer.h"

namespace atl::server {

// Who pushes: what Join gave.
struct PushIdentity {
  std::string island_id;
  int64_t island_epoch = 0;
  std::string session_secret;  // As it came, not in hex.
};

// Since the client was made.
struct TransferCounters {
  int64_t sent_payload_bytes = 0;
  int64_t received_payload_bytes = 0;
};

class ParameterClient {
 public:
  virtual ~ParameterClient() = default;

  // Gives new routes. Calls that are under way use them from their next attempt
  // on.
  virtual void SetRoutes(ShardRoutes routes) = 0;

  // Gives the identity of the pushes that start from now on.
  virtual void SetIdentity(PushIdentity identity) = 0;

  // Pushes the contribution `info` (its digest is the caller's name for these
  // bytes, base/layout/digest.h) to every shard that holds a part of its
  // fragment. `encoded`, by info.codec, is read until the call returns, never
  // after.
  //
  // Tries again: UNAVAILABLE, RESOURCE_EXHAUSTED, DATA_LOSS,
  // FAILED_PRECONDITION and NOT_FOUND (a server whose plan is behind), until
  // the deadline (DEADLINE_EXCEEDED, with the last error in the message) or the
  // stop (CANCELLED). Returns at once, and cancels the other shards:
  //   INVALID_ARGUMENT: the contribution is refused, here or by a shard.
  //   ABORTED: an epoch or the placement is not the newest; look at the plan.
  //   UNAUTHENTICATED, PERMISSION_DENIED, ...: as the shard says.
  // Whatever the outcome, shards keep what they have stored.
  virtual TransferOutcome Push(const v1::ContributionInfo& info,
                               absl::Span<const char> encoded,
                               const CallBounds& bounds) = 0;

  // Pulls `fragment` at exactly `version` into `out`. If `expected` is given
  // the fragment's digest must be that (FragmentVersion.digest).
  //
  // Tries again as Push does. Returns at once:
  //   OUT_OF_RANGE: the version is no longer held; look at the plan.
  //   ABORTED, INVALID_ARGUMENT, ...: as the shard says.
  //   DATA_LOSS: the parts are right by themselves, but not the whole.
  // After an error `out` holds no defined values.
  virtual TransferOutcome Pull(int32_t fragment, int64_t version,
                               const std::optional<Digest128>& expected,
                               absl::Span<float> out,
                               const CallBounds& bounds) = 0;

  // Takes `out` to the view V of `fragment` at exactly `version`: what islands
  // of a run with a view (base/layout/exchange.h) hold, theta itself in others.
  // `from_version` is the version of V that `out` holds before; -1: none. Shards
  // send what leads from there to here, or V in full. Every shard says which
  // digest its part has: the result is what the shard holds, bit for bit.
  //
  // Errors and retries as Pull. Where what leads there is no encoding, or leads
  // to values that are not finite, V is asked for in full. After an error `out`
  // holds no defined values.
  virtual TransferOutcome PullReplica(int32_t fragment, int64_t version,
                                      int64_t from_version,
                                      absl::Span<float> out,
                                      const CallBounds& bounds) = 0;

  // Pushes version 0 of `fragment`, for a run whose spec says `import`. Errors
  // and retries as Push.
  virtual TransferOutcome Import(int32_t fragment,
                                 absl::Span<const float> elements,
                                 const CallBounds& bounds) = 0;

  virtual TransferCounters counters() const = 0;
};

struct ParameterClientOptions {
  std::string run_id;
  int32_t shard_count = 0;  // RunSpec.server_count, >= 1.
  rpc::ChannelOptions channel;
  BandwidthCaps caps;  // Of all calls together.
  // Of a run at level ISLAND, whose servers merge by units of
  // codec::kChunkBlocksUnit blocks: chunks are such units where the link and
  // the cap carry them, and parts of one where they do not.
  bool whole_units = false;
  // Over how many streams, each on a connection of its own, a call spreads if
  // it is large enough, >= 1; a shard has one at least (stripes.h).
  int stream_count = kDefaultStreamCount;
  // What a call has handed to its streams, and they not yet to the network, is
  // less than this, >= 1 MiB; but with `whole_units` chunks are not made
  // smaller than a unit for it.
  int64_t in_flight_bytes_max = 32 << 20;
  // A plan reaches islands and servers at about the same time, so the first
  // answer is often "not here yet" for a millisecond or two.
  rpc::RetryPolicy retry = {.initial_delay = absl::Milliseconds(2),
                            .max_delay = absl::Seconds(2)};
  uint64_t seed = 0;  // Of the jitter of retries.
  // A stream on which nothing moves for this long is given up and tried again.
  absl::Duration stall_timeout = absl::Seconds(60);
  // Of one process of several that together are an island: the blocks that it
  // holds, by fragment, rising, not touching; empty: all of them. Spans that
  // calls are given have the elements of these alone, one after the other. A
  // push is over when the shards that hold some of them have all of theirs,
  // whoever pushed it; a pull leaves it to its caller to sum up what came
  // (TransferOutcome.digests), and Pull does not look at `expected`.
  std::vector<std::vector<IndexRange>> held;
};

// The options that `spec` decides, of a client of run `run_id`.
ParameterClientOptions MakeRunOptions(absl::string_view run_id,
                                      const v1::RunSpec& spec);

// A client on connections of its own, one a server. Nothing is dialled before
// the first call; `layout` must outlive it.
//
// INVALID_ARGUMENT: an option is wrong.
absl::StatusOr<std::unique_ptr<ParameterClient>> MakeParameterClient(
    const ParameterClientOptions& options, const RunLayout& layout);

}  // namespace atl::server

#endif  // SERVER_CLIENT_PARAMETER_CLIENT_H_
