#include "base/layout/encoded_layout.h"

#include <algorithm>
#include <utility>

namespace atl {

EncodedLayout::EncodedLayout(const RunLayout& layout, int32_t fragment,
                             const codec::Codec& codec)
    : layout_(&layout),
      fragment_(fragment),
      codec_(&codec),
      full_block_bytes_(
          static_cast<int64_t>(codec.EncodedBytes(codec::kBlockElements))) {
  Place place;
  for (const int32_t index : layout.fragment_tensors(fragment)) {
    const TensorPlace& tensor = layout.tensors()[index];
    place.first_block = tensor.first_block;
    tensors_.push_back(place);
    const int64_t full = tensor.element_count / codec::kBlockElements;
    const int64_t rest = tensor.element_count % codec::kBlockElements;
    place.offset += full * full_block_bytes_;
    if (rest > 0) {
      place.offset += static_cast<int64_t>(codec.EncodedBytes(rest));
    }
  }
  place.first_block = layout.fragment_block_count(fragment);
  tensors_.push_back(place);
  held_ = {{0, place.first_block}};
  byte_count_ = place.offset;
}

EncodedLayout::EncodedLayout(const RunLayout& layout, int32_t fragment,
                             const codec::Codec& codec,
                             std::vector<IndexRange> held)
    : EncodedLayout(layout, fragment, codec) {
  if (held == held_) return;
  held_ = std::move(held);
  byte_count_ = 0;
  for (const IndexRange blocks : held_) {
    held_offsets_.push_back(byte_count_);
    byte_count_ += WholeOffset(blocks.end) - WholeOffset(blocks.begin);
  }
}

int64_t EncodedLayout::ByteOffset(int64_t block) const {
  if (held_.empty()) return 0;
  if (held_offsets_.empty()) return WholeOffset(block);
  const auto after = std::upper_bound(
      held_.begin(), held_.end(), block,
      [](int64_t b, const IndexRange& blocks) { return b < blocks.begin; });
  if (after == held_.begin()) return 0;
  const IndexRange& blocks = *(after - 1);
  return held_offsets_[after - 1 - held_.begin()] +
         WholeOffset(std::min(block, blocks.end)) - WholeOffset(blocks.begin);
}

int64_t EncodedLayout::WholeOffset(int64_t block) const {
  const auto after = std::upper_bound(
      tensors_.begin(), tensors_.end(), block,
      [](int64_t b, const Place& tensor) { return b < tensor.first_block; });
  const Place& tensor = *(after - 1);
  // Only a tensor's last block is short, and the next tensor has its own Place.
  return tensor.offset + (block - tensor.first_block) * full_block_bytes_;
}

std::vector<int32_t> EncodedLayout::ElementCounts(IndexRange blocks) const {
  std::vector<int32_t> counts;
  counts.reserve(blocks.size());
  int64_t begin = layout_->BlockOffset(fragment_, blocks.begin);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t end = layout_->BlockOffset(fragment_, b + 1);
    counts.push_back(static_cast<int32_t>(end - begin));
    begin = end;
  }
  return counts;
}

int64_t EncodedLayout::chunk_blocks(int64_t payload_bytes_max) const {
  const int64_t count = payload_bytes_max / full_block_bytes_;
  return count >= codec::kChunkBlocksUnit
             ? count / codec::kChunkBlocksUnit * codec::kChunkBlocksUnit
             : std::max<int64_t>(1, count);
}

}  // namespace atl
