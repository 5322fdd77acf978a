// The blocks of one fragment that one shard holds, and the offsets of their
// elements in a file with these blocks only.
//
// Pure. Thread-safe. The layout must outlive it.

#pragma once

#include <cstdint>

#include "base/layout/layout.h"

namespace atl::server {

class ShardRange {
 public:
  ShardRange(const RunLayout& layout, int32_t fragment, int32_t shard,
             int32_t shard_count)
      : layout_(&layout),
        fragment_(fragment),
        blocks_(layout.ShardBlocks(fragment, shard, shard_count)),
        elements_(layout.BlockElements(fragment, blocks_)) {}

  const RunLayout& layout() const { return *layout_; }
  int32_t fragment() const { return fragment_; }
  // Numbers of the blocks in the fragment.
  IndexRange blocks() const { return blocks_; }
  bool empty() const { return blocks_.empty(); }
  int64_t block_count() const { return blocks_.size(); }
  int64_t element_count() const { return elements_.size(); }

  // Elements before `block` in the range. Requires: block in [begin, end].
  int64_t ElementOffset(int64_t block) const {
    return layout_->BlockOffset(fragment_, block) - elements_.begin;
  }
  // Elements of `blocks`.
  int64_t ElementCount(IndexRange blocks) const {
    return layout_->BlockElements(fragment_, blocks).size();
  }

 private:
  const RunLayout* layout_;
  int32_t fragment_;
  IndexRange blocks_;
  IndexRange elements_;
};

}  // namespace atl::server
