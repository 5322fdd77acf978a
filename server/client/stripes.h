// How many streams a call uses, and how large chunks may be. Pure. Thread-safe.

#pragma once

#include <algorithm>
#include <cstdint>

#include "base/codec/block_grid.h"
#include "base/layout/layout.h"
#include "base/rpc/chunk_sizer.h"

namespace atl::server {

inline constexpr int kDefaultStreamCount = 4;
// Most streams for one shard.
inline constexpr int kStreamCountMax = 16;
// The smallest stripe that is worth its own stream.
inline constexpr int64_t kStripeBytesMin = 512 << 10;
// Bytes that HTTP/2 lets through before anything is read.
inline constexpr int64_t kStreamWindowBytes = 64 << 10;

// Streams for a shard's part of `part_bytes`, when `shard_count` (>= 1) shards
// share `stream_count` (>= 1) streams. `tenth_bytes` (>= 0): what the cap
// allows in a tenth of a second, because a cap leaves few bytes in flight.
inline int ChooseStreamCount(int64_t part_bytes, int32_t shard_count,
                             int stream_count, int64_t tenth_bytes) {
  const int64_t count = std::min(
      {static_cast<int64_t>((stream_count + shard_count - 1) / shard_count),
       part_bytes / kStripeBytesMin,
       tenth_bytes / kStreamWindowBytes / shard_count,
       static_cast<int64_t>(kStreamCountMax)});
  return static_cast<int>(std::max<int64_t>(1, count));
}

// Stripe `index` of `count` (>= 1) of a part with at least `count` blocks.
// Large parts are cut at multiples of the largest chunk.
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

// Bound on a call's bytes that its streams hold and have not yet sent.
inline constexpr int64_t kInFlightBytesMax = 32 << 20;

// Largest payload of a chunk. Each of `stream_count` (>= 1) streams holds two
// (one being written, one prepared), together at most kInFlightBytesMax.
inline int64_t ChunkBytesMax(int stream_count) {
  return std::clamp(kInFlightBytesMax / (2 * stream_count),
                    rpc::ChunkSizer::kBytesMin, rpc::ChunkSizer::kBytesMax);
}

}  // namespace atl::server
