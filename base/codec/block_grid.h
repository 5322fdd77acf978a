// The grid on which shards, codecs, chunks and digests are cut. Pure.

#pragma once

#include <cstdint>

namespace atl::codec {

// Elements of a block. The last block of a tensor may be shorter.
inline constexpr int64_t kBlockElements = 4096;

// Largest payload of a chunk in bytes: 64 blocks of f32.
inline constexpr int64_t kChunkPayloadBytesMax = int64_t{1} << 20;

// A chunk holds a multiple of this many blocks, so every program cuts the same
// chunks. 64 is the largest count that fits with every codec.
inline constexpr int64_t kChunkBlocksUnit = 64;

// Blocks of a tensor of `element_count` (>= 0) elements.
constexpr int64_t BlockCount(int64_t element_count) {
  return (element_count + kBlockElements - 1) / kBlockElements;
}

}  // namespace atl::codec
