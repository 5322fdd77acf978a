// The byte offset of each block in a fragment's encoding. Pure. Immutable, so
// thread-safe. The layout must outlive it.
//
// A fragment's encoding is its blocks' encodings back to back. A block's size
// depends only on its element count (base/codec/codec.h). So every offset is
// known before encoding: in an island's memory, in a chunk, in a server's file.
// A process that holds only some of the blocks has these back to back.

#pragma once

#include <cstdint>
#include <vector>

#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/layout/layout.h"

namespace atl {

class EncodedLayout {
 public:
  // Requires: `fragment` is one of the layout's.
  EncodedLayout(const RunLayout& layout, int32_t fragment,
                const codec::Codec& codec);
  // For memory with only the blocks `held`: ascending, not adjacent.
  EncodedLayout(const RunLayout& layout, int32_t fragment,
                const codec::Codec& codec, std::vector<IndexRange> held);

  const RunLayout& layout() const { return *layout_; }
  int32_t fragment() const { return fragment_; }
  const codec::Codec& codec() const { return *codec_; }

  // The held blocks, ascending, not adjacent.
  const std::vector<IndexRange>& held() const { return held_; }

  // Bytes of the held blocks before `block`.
  // Requires: 0 <= block <= fragment_block_count().
  int64_t ByteOffset(int64_t block) const;
  // Bytes of the held blocks among `blocks`.
  int64_t ByteCount(IndexRange blocks) const {
    return ByteOffset(blocks.end) - ByteOffset(blocks.begin);
  }
  // Bytes of all held blocks.
  int64_t byte_count() const { return byte_count_; }

  // Blocks of a full chunk: the largest multiple of kChunkBlocksUnit that fits
  // in kChunkPayloadBytesMax.
  int64_t chunk_blocks() const {
    return chunk_blocks(codec::kChunkPayloadBytesMax);
  }
  // The same for a payload of at most `payload_bytes_max` (0 to
  // kChunkPayloadBytesMax). If not even kChunkBlocksUnit blocks fit, it is as
  // many as fit, and at least one.
  int64_t chunk_blocks(int64_t payload_bytes_max) const;

  // Element counts of `blocks`, in order, for codec::BlockRun.
  std::vector<int32_t> ElementCounts(IndexRange blocks) const;
  int64_t ElementCount(int64_t block) const {
    return layout_->BlockElements(fragment_, {block, block + 1}).size();
  }

 private:
  // One for each tensor of the fragment, and one for its end.
  struct Place {
    int64_t first_block = 0;
    int64_t offset = 0;  // Bytes before `first_block`.
  };

  // ByteOffset() as if all blocks were held.
  int64_t WholeOffset(int64_t block) const;

  const RunLayout* layout_;
  int32_t fragment_;
  const codec::Codec* codec_;
  int64_t full_block_bytes_;
  std::vector<Place> tensors_;
  std::vector<IndexRange> held_;
  std::vector<int64_t> held_offsets_;  // By range of held_; empty: all held.
  int64_t byte_count_ = 0;
};

}  // namespace atl
