// Offsets of a shard's encoded blocks of one fragment, in a file with these
// blocks only.
//
// Pure. Immutable, so thread-safe. The layout must outlive it.

#pragma once

#include <cstdint>

#include "base/codec/codec.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/layout.h"
#include "server/store/shard_range.h"

namespace atl::server {

class EncodedRange {
 public:
  EncodedRange(const ShardRange& range, const codec::Codec& codec)
      : range_(range),
        encoded_(range.layout(), range.fragment(), codec),
        begin_(encoded_.ByteOffset(range.blocks().begin)) {}

  const ShardRange& range() const { return range_; }
  const codec::Codec& codec() const { return encoded_.codec(); }
  // True if elements are encoded as they lie in memory.
  bool is_f32() const { return codec().id() == codec::CodecId::kF32; }

  // Bytes before `block` in the range. Requires: block in [begin, end].
  int64_t ByteOffset(int64_t block) const {
    return encoded_.ByteOffset(block) - begin_;
  }
  int64_t ByteCount(IndexRange blocks) const {
    return encoded_.ByteCount(blocks);
  }
  int64_t byte_count() const { return ByteCount(range_.blocks()); }

 private:
  ShardRange range_;
  EncodedLayout encoded_;
  int64_t begin_;
};

}  // namespace atl::server
