// Bandwidth caps of an island, all its processes together, one each way. They
// count payload: bytes of encoded elements in chunks, repeats included. Chunk
// headers, HTTP/2, TCP/IP (4 to 6 % on Ethernet) and control messages are
// extra.

#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"

namespace atl::server {

// 100 kb/s, the lowest cap.
inline constexpr double kCapBytesPerSecondMin = 12500;

// The lowest cap that keeps the streams to `shard_count` (>= 1) servers alive.
// A server ends a stream without a whole chunk in 20 s (server/DESIGN.md, Flow
// control). Each server's one stream sends a block in half that time.
inline double LeastCapBytesPerSecond(int32_t shard_count) {
  constexpr double kTurnSeconds = 10;
  constexpr double kBlockBytes = codec::kBlockElements * sizeof(float);
  return std::max(kCapBytesPerSecondMin,
                  shard_count * kBlockBytes / kTurnSeconds);
}

// Bytes a second over all shards and streams; 0: no cap.
struct BandwidthCaps {
  double up_bytes_per_second = 0;
  double down_bytes_per_second = 0;
};

// The share of `caps` of one of `process_count` processes that hold a model
// between them: proportional to its `held` of `all` elements (0 <= held <= all,
// all >= 1). Shares sum to the caps, so an exchange takes all processes equally
// long. A process that holds nothing moves nothing and gets 0. Each process has
// streams to `shard_count` servers: if the cap gives each process the least it
// needs, a smaller share is raised to that least.
inline BandwidthCaps TakePart(const BandwidthCaps& caps, int64_t held,
                              int64_t all, int process_count,
                              int32_t shard_count) {
  const double share = static_cast<double>(held) / static_cast<double>(all);
  const double least = LeastCapBytesPerSecond(shard_count);
  const auto take = [&](double cap) {
    const double part = share * cap;
    const bool enough = cap >= process_count * least;
    return part > 0 && enough ? std::max(part, least) : part;
  };
  return {.up_bytes_per_second = take(caps.up_bytes_per_second),
          .down_bytes_per_second = take(caps.down_bytes_per_second)};
}

// INVALID_ARGUMENT: a cap is neither 0 nor at least LeastCapBytesPerSecond.
inline absl::Status CheckCaps(const BandwidthCaps& caps, int32_t shard_count) {
  const double least = LeastCapBytesPerSecond(shard_count);
  for (const double cap :
       {caps.up_bytes_per_second, caps.down_bytes_per_second}) {
    if (cap != 0 && !(cap >= least)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a bandwidth cap of ", cap, " bytes a second is less than ", least,
          ", the least that keeps the streams to ", shard_count,
          " servers alive"));
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::server
