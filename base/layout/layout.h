// A run's layout, validated, with the tables by which every program cuts
// tensors. Pure. Immutable after Create, so thread-safe.
//
// Each tensor is cut from its start into blocks of kBlockElements (4096)
// elements. Its last block may be shorter; no block crosses tensors. The flat
// order of a fragment is its tensors in layout order, each row-major, and its
// blocks are numbered from 0 in that order. A shard holds one range of
// consecutive whole blocks of every fragment, balanced by elements.
//
// The model order is all tensors in layout order, whatever their fragment: the
// order of an island's flat parameter buffer and of a checkpoint.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"

namespace atl {

// Half-open range of block numbers or of element offsets.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// One tensor's place in both orders. All counts are elements.
struct TensorPlace {
  std::string name;
  int32_t tensor = 0;           // Index in the layout.
  int32_t fragment = 0;
  bool is_buffer = false;       // Has TENSOR_CLASS_BUFFER.
  int64_t element_count = 0;    // Product of its shape.
  int64_t model_offset = 0;     // First element's place in the model order.
  int64_t fragment_offset = 0;  // In the fragment's flat order.
  int64_t first_block = 0;      // Number of its first block in the fragment.
  int64_t block_count = 0;
};

class RunLayout {
 public:
  // Most elements a layout may have (2^40) and most tensors (2^16).
  static constexpr int64_t kMaxElements = int64_t{1} << 40;
  static constexpr int kMaxTensors = 1 << 16;

  // Validates `layout` and builds the tables.
  // INVALID_ARGUMENT: a name is empty, longer than 256 bytes, has characters
  // outside [A-Za-z0-9._-], or is not unique; a dimension is not positive; the
  // layout is too large; a fragment is empty or out of range; an enum is not
  // set; an init value is not finite. The message names the tensor.
  static absl::StatusOr<RunLayout> Create(const v1::Layout& layout);

  // First 8 bytes, little-endian, of SHA-256 of the canonical text: the line
  // "atoll layout 1 FRAGMENT_COUNT\n", then for each tensor
  // "NAME DTYPE CLASS FRAGMENT D0xD1x...\n" with enums as numbers.
  uint64_t fingerprint() const { return fingerprint_; }

  int32_t fragment_count() const {
    return static_cast<int32_t>(fragments_.size());
  }
  int64_t element_count() const { return element_count_; }
  // In layout order.
  const std::vector<TensorPlace>& tensors() const { return tensors_; }
  // Indices into tensors(), in flat order.
  const std::vector<int32_t>& fragment_tensors(int32_t fragment) const {
    return fragments_[fragment].tensors;
  }
  int64_t fragment_element_count(int32_t fragment) const {
    return fragments_[fragment].element_count;
  }
  int64_t fragment_block_count(int32_t fragment) const {
    return fragments_[fragment].block_count;
  }
  bool has_buffers(int32_t fragment) const {
    return fragments_[fragment].has_buffers;
  }

  // Offset, in the fragment's flat order, of the first element of `block`. For
  // block == fragment_block_count() it is the fragment's element count.
  // Requires: 0 <= block <= fragment_block_count(fragment).
  int64_t BlockOffset(int32_t fragment, int64_t block) const;

  // Elements of `blocks`, in the fragment's flat order.
  IndexRange BlockElements(int32_t fragment, IndexRange blocks) const;

  const TensorPlace& BlockTensor(int32_t fragment, int64_t block) const;

  // Blocks of `fragment` on `shard` of `shard_count`; may be empty. Shard s
  // begins at the first block that starts at or after floor(element_count * s /
  // shard_count).
  // Requires: 0 <= shard < shard_count.
  IndexRange ShardBlocks(int32_t fragment, int32_t shard,
                         int32_t shard_count) const;

 private:
  struct Fragment {
    std::vector<int32_t> tensors;
    int64_t element_count = 0;
    int64_t block_count = 0;
    bool has_buffers = false;
  };

  RunLayout() = default;

  // The first block whose offset is >= `element`.
  int64_t FirstBlockAt(int32_t fragment, int64_t element) const;

  uint64_t fingerprint_ = 0;
  int64_t element_count_ = 0;
  std::vector<TensorPlace> tensors_;
  std::vector<Fragment> fragments_;
};

}  // namespace atl
