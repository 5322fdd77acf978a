// Over how many streams a call spreads, and how large their chunks may be.
//
// Pure. Thread-safe.

#ifndef SERVER_CLIENT_STRIPES_H_
#define SERVER_CLIENT_STRIPES_H_

#include <algorithm>
#include <cstdint>

#include "base/codec/block_grid.h"
#include "base/layout/layout.h"
#include "base/rpc/chunk_sizer.h"

namespace atl::server {

// Streams of a call, unless its caller says otherwise.
inline constexpr int kDefaultStreamCount = 4;
// Streams a shard at most.
inline constexpr int kStreamCountMax = 16;
// A stream is worth its header and its round trips from here on.
inline constexpr int64_t kStripeBytesMin = 512 << 10;
// What HTTP/2 lets through before anybody reads it.
inline constexpr int64_t kStreamWindowBytes = 64 << 10;

// Streams of a shard's part of `part_bytes`, when `stream_count` (>= 1) in all
// are shared by `shard_count` (>= 1) shards, and a cap lets `tenth_bytes` (>=
// 0) pass in a tenth of a second: what is in flight must not be much of a cap.
inline int ChooseStreamCount(int64_t part_bytes, int32_t shard_count,
                             int stream_count, int64_t tenth_bytes) {
  const int64_t count = std::min(
      {static_cast<int64_t>((stream_count + shard_count - 1) / shard_count),
       part_bytes / kStripeBytesMin,
       tenth_bytes / kStreamWindowBytes / shard_count,
       static_cast<int64_t>(kStreamCountMax)});
  return static_cast<int>(std::max<int64_t>(1, count));
}

// Stripe `index` of `count` (>= 1) of a part, which has a block for each at
// least; cut between chunks of the largest kind where it is large enough.
inline IndexRange TakeStripe(IndexRange part, int count, int index) {
  const int64_t unit =
      part.size() >= count * codec::kChunkBlocksUnit ? codec::kChunkBlocksUnit
                                                     : 1;
  const auto cut = [part, count, unit](int64_t i) {
    return i == count ? part.end
                      : part.begin + part.size() * i / count / unit * unit;
  };
  return {cut(index), cut(index + 1)};
}

// Payload of a chunk at most, so that `stream_count` (>= 1) streams with two
// each (one that is written, one that is prepared) keep to
// `in_flight_bytes_max`.
inline int64_t ChunkBytesMax(int64_t in_flight_bytes_max, int stream_count) {
  return std::clamp(in_flight_bytes_max / (2 * stream_count),
                    rpc::ChunkSizer::kBytesMin, rpc::ChunkSizer::kBytesMax);
}

}  // namespace atl::server

#endif  // SERVER_CLIENT_STRIPES_H_
