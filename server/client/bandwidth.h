// What an island, all its processes together, may use of its link, each way.
//
// A cap counts payload: the bytes of encoded elements in chunks, repeats
// included. What frames them (a chunk's header and checksum, HTTP/2, TCP/IP: 4
// to 6 % on Ethernet), control messages and heartbeats come on top.

#ifndef SERVER_CLIENT_BANDWIDTH_H_
#define SERVER_CLIENT_BANDWIDTH_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"

namespace atl::server {

// 100 kb/s: no cap is lower.
inline constexpr double kCapBytesPerSecondMin = 12500;

// The least that keeps the streams to `shard_count` (>= 1) servers alive. A
// server ends one that has brought no whole chunk in 20 s (server/DESIGN.md,
// "Flow control"), a chunk is a block at least, and under a low cap each server
// has one stream: in half that time each has its turn.
inline double LeastCapBytesPerSecond(int32_t shard_count) {
  constexpr double kTurnSeconds = 10;
  constexpr double kBlockBytes = codec::kBlockElements * sizeof(float);
  return std::max(kCapBytesPerSecondMin,
                  shard_count * kBlockBytes / kTurnSeconds);
}

// Bytes a second over all shards and streams; 0 for no cap.
struct BandwidthCaps {
  double up_bytes_per_second = 0;
  double down_bytes_per_second = 0;
};

// The part of `caps` for one of several processes that are capped together and
// hold a model between them: as large as what it holds, `held` of `all` elements
// (0 <= held <= all, all >= 1), so that parts add up to the caps and what moves
// once for each element takes all of them equally long. Who holds nothing moves
// nothing, and is not capped.
inline BandwidthCaps TakePart(const BandwidthCaps& caps, int64_t held,
                              int64_t all) {
  const double share = static_cast<double>(held) / static_cast<double>(all);
  return {.up_bytes_per_second = share * caps.up_bytes_per_second,
          .down_bytes_per_second = share * caps.down_bytes_per_second};
}

// The same of one of `process_count` processes, each of which speaks to
// `shard_count` servers: a cap that gives each the least it needs is none too
// little for a small part, which gets that least and goes over its share.
inline BandwidthCaps TakePart(const BandwidthCaps& caps, int64_t held,
                              int64_t all, int process_count,
                              int32_t shard_count) {
  const double least = LeastCapBytesPerSecond(shard_count);
  const auto lift = [&](double cap, double part) {
    const bool enough = cap >= process_count * least;
    return part > 0 && enough ? std::max(part, least) : part;
  };
  BandwidthCaps part = TakePart(caps, held, all);
  part.up_bytes_per_second =
      lift(caps.up_bytes_per_second, part.up_bytes_per_second);
  part.down_bytes_per_second =
      lift(caps.down_bytes_per_second, part.down_bytes_per_second);
  return part;
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

#endif  // SERVER_CLIENT_BANDWIDTH_H_
