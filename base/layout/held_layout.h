// What of a layout one process holds: whole blocks, anywhere in the model.
//
// Pure. Immutable, so thread-safe. The layout must outlive it.
//
// Two orders, both without gaps: the held order is the model order of what is
// held; the held order of a fragment is the fragment's flat order of what is
// held of it. Where all is held they are the model order and the flat order.

#ifndef BASE_LAYOUT_HELD_LAYOUT_H_
#define BASE_LAYOUT_HELD_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/layout/layout.h"

namespace atl {

// Elements of one tensor that are neighbours in each order.
struct HeldPiece {
  int32_t tensor = 0;           // Index in the layout.
  int64_t tensor_offset = 0;    // Of its first element in the tensor.
  int64_t held_offset = 0;      // The same in the held order,
  int64_t fragment_offset = 0;  // and in the held order of the fragment.
  int64_t element_count = 0;
};

class HeldLayout {
 public:
  // All of it.
  explicit HeldLayout(const RunLayout& layout);

  // What lies in `spans` of the model order: rising, not overlapping.
  //
  // INVALID_ARGUMENT: they are not so, reach beyond the model, or cut a block.
  static absl::StatusOr<HeldLayout> Create(const RunLayout& layout,
                                           absl::Span<const IndexRange> spans);

  const RunLayout& layout() const { return *layout_; }
  // True if all of the layout is held.
  bool is_all() const { return element_count_ == layout_->element_count(); }
  // Ranges of the model order, rising, not touching.
  const std::vector<IndexRange>& spans() const { return spans_; }

  // Elements that are held, of the model and of one fragment.
  int64_t element_count() const { return element_count_; }
  int64_t fragment_element_count(int32_t fragment) const {
    return fragments_[fragment].element_count;
  }
  // That of the fragment with the most.
  int64_t fragment_element_count_max() const;

  // Blocks of `fragment`, rising, not touching.
  const std::vector<IndexRange>& fragment_blocks(int32_t fragment) const {
    return fragments_[fragment].blocks;
  }
  // Of all fragments.
  std::vector<std::vector<IndexRange>> blocks() const;
  // What is held of `fragment`, in its flat order.
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

#endif  // BASE_LAYOUT_HELD_LAYOUT_H_
