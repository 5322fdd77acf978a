// The part of a layout that one process holds: whole blocks, anywhere in the
// model. Pure. Immutable, so thread-safe. The layout must outlive it.
//
// It defines two orders without gaps. The held order is the model order of the
// held elements. The held order of a fragment is its flat order of the held
// elements. If all is held, they are the model order and the flat order.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/layout/layout.h"

namespace atl {

// Elements of one tensor that are consecutive in each order.
struct HeldPiece {
  int32_t tensor = 0;           // Index in the layout.
  int64_t tensor_offset = 0;    // First element's place in the tensor.
  int64_t held_offset = 0;      // Its place in the held order.
  int64_t fragment_offset = 0;  // Its place in the fragment's held order.
  int64_t element_count = 0;
};

class HeldLayout {
 public:
  // Holds the whole layout.
  explicit HeldLayout(const RunLayout& layout);

  // Holds `spans` of the model order, which are ascending and do not overlap.
  // INVALID_ARGUMENT: they overlap or descend, reach beyond the model, or cut a
  // block.
  static absl::StatusOr<HeldLayout> Create(const RunLayout& layout,
                                           absl::Span<const IndexRange> spans);

  const RunLayout& layout() const { return *layout_; }
  bool is_all() const { return element_count_ == layout_->element_count(); }
  // Ranges of the model order, ascending, not adjacent.
  const std::vector<IndexRange>& spans() const { return spans_; }

  // Held elements, of the model and of one fragment.
  int64_t element_count() const { return element_count_; }
  int64_t fragment_element_count(int32_t fragment) const {
    return fragments_[fragment].element_count;
  }
  // The most held elements of any fragment.
  int64_t fragment_element_count_max() const;

  // Held blocks of `fragment`, ascending, not adjacent.
  const std::vector<IndexRange>& fragment_blocks(int32_t fragment) const {
    return fragments_[fragment].blocks;
  }
  // Held blocks of every fragment, by fragment.
  std::vector<std::vector<IndexRange>> blocks() const;
  // Held pieces of `fragment`, in its flat order.
  const std::vector<HeldPiece>& pieces(int32_t fragment) const {
    return fragments_[fragment].pieces;
  }

 private:
  struct Fragment {
    int64_t element_count = 0;
    std::vector<IndexRange> blocks;
    std::vector<HeldPiece> pieces;
  };

  HeldLayout() = default;

  const RunLayout* layout_ = nullptr;
  int64_t element_count_ = 0;
  std::vector<IndexRange> spans_;
  std::vector<Fragment> fragments_;
};

}  // namespace atl
