// Reads what a pin keeps from a run's shards: arrays of the outer optimizer's
// state, or merged contributions (ParameterService.PullKept). For operators who
// replay a run; bandwidth caps do not apply. Thread-safe. Calls block.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/codec/codec.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/rpc/channel.h"
#include "server/client/parameter_client.h"
#include "server/client/route_table.h"
#include "server/client/transfer.h"

namespace atl::server {

// One shard's part of the digests of the version that a contribution was merged
// into: of theta, and of the replica if the run has one.
struct KeptDigests {
  int32_t shard = 0;
  Digest128 digest;
  std::optional<Digest128> replica_digest;
};

struct KeptClientOptions {
  std::string run_id;
  int32_t shard_count = 0;  // RunSpec.server_count, >= 1.
  rpc::ChannelOptions channel;
};

class KeptClient {
 public:
  // Dials nothing before the first call. `layout` must outlive the client.
  // INVALID_ARGUMENT: an option is wrong.
  static absl::StatusOr<std::unique_ptr<KeptClient>> Create(
      const KeptClientOptions& options, const RunLayout& layout,
      ShardRoutes routes);

  // Calls in progress use the new routes from their next attempt on.
  void SetRoutes(ShardRoutes routes) { routes_.Set(std::move(routes)); }

  // Reads `blocks`, encoded by `codec`, into `out`, which has exactly their
  // bytes. `wanted` names the fragment and the contribution or array. `digests`
  // gets an entry for each shard with some of the blocks, in order; null: none.
  // Retries as ParameterClient::Pull. Returns at once:
  //   OUT_OF_RANGE: not held or not kept; the message says why.
  //   INVALID_ARGUMENT, ABORTED, PERMISSION_DENIED, ...: as the shard says.
  // After a few tries: DATA_LOSS, damaged; the message names the contribution.
  absl::Status Pull(const v1::PullKeptRequest& wanted,
                    const codec::Codec& codec, IndexRange blocks,
                    absl::Span<char> out, const CallBounds& bounds,
                    std::vector<KeptDigests>* digests);

 private:
  KeptClient(const KeptClientOptions& options, const RunLayout& layout)
      : options_(options), layout_(layout), routes_(options.channel) {}

  const KeptClientOptions options_;
  const RunLayout& layout_;
  RouteTable routes_;
};

}  // namespace atl::server
