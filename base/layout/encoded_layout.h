// Where each block of a fragment lies when the fragment is encoded.
//
// Pure. Immutable, so thread-safe. The layout must outlive it.
//
// A fragment's encoding is its blocks' encodings back to back. How many bytes a
// block takes depends on its element count alone (base/codec/codec.h), so that
// every block's place is known before anything is encoded: in an island's
// memory, in a chunk, in a server's file. Who holds only some of the blocks has
// these back to back.

#ifndef BASE_LAYOUT_ENCODED_LAYOUT_H_
#define BASE_LAYOUT_ENCODED_LAYOUT_H_

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
  // Of a memory with the blocks `held` alone: rising, not touching.
  EncodedLayout(const RunLayout& layout, int32_t fragment,
                const codec::Codec& codec, std::vector<IndexRange> held);

  const RunLayout& layout() const { return *layout_; }
  int32_t fragment() const { return fragment_; }
  const codec::Codec& codec() const { return *codec_; }

  // The blocks whose places these are, rising, not touching.
  const std::vector<IndexRange>& held() const { return held_; }

  // Bytes before `block`, of blocks that are held; for block ==
  // fragment_block_count() those of all that is held. Requires:
  // 0 <= block <= fragment_block_count().
  int64_t ByteOffset(int64_t block) const;
  // Bytes that `blocks` take, as far as they are held.
  int64_t ByteCount(IndexRange blocks) const {
    return ByteOffset(blocks.end) - ByteOffset(blocks.begin);
  }
  // Those of all that is held.
  int64_t byte_count() const { return byte_count_; }

  // Blocks of a chunk: as many times kChunkBlocksUnit as fit in
  // kChunkPayloadBytesMax.
  int64_t chunk_blocks() const {
    return chunk_blocks(codec::kChunkPayloadBytesMax);
  }
  // Those of one with at most `payload_bytes_max` (>= 0, at most
  // kChunkPayloadBytesMax) of payload: as many times kChunkBlocksUnit as fit in
  // it, or, if that is none, as many blocks; at least one.
  int64_t chunk_blocks(int64_t payload_bytes_max) const;

  // Element counts of `blocks`, in order: what codec::BlockRun wants.
  std::vector<int32_t> ElementCounts(IndexRange blocks) const;
  // That of one.
  int64_t ElementCount(int64_t block) const {
    return layout_->BlockElements(fragment_, {block, block + 1}).size();
  }

 private:
  // One a tensor of the fragment, and one for its end.
  struct Place {
    int64_t first_block = 0;
    int64_t offset = 0;  // Bytes before it.
  };

  // ByteOffset() where all is held.
  int64_t WholeOffset(int64_t block) const;

  const RunLayout* layout_;
  int32_t fragment_;
  const codec::Codec* codec_;
  int64_t full_block_bytes_;
  std::vector<Place> tensors_;
  std::vector<IndexRange> held_;
  std::vector<int64_t> held_offsets_;  // Of held_; empty: all is held.
  int64_t byte_count_ = 0;
};

}  // namespace atl

#endif  // BASE_LAYOUT_ENCODED_LAYOUT_H_
