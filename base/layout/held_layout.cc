#include "base/layout/held_layout.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/block_grid.h"

namespace atl {
namespace {

// Appends `range`, and joins it to the last one if they are adjacent.
void Append(std::vector<IndexRange>& ranges, IndexRange range) {
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

absl::Status Misfit(IndexRange span, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "held elements [", span.begin, ", ", span.end, ") ", what));
}

}  // namespace

HeldLayout::HeldLayout(const RunLayout& layout)
    : HeldLayout(*Create(layout, {{0, layout.element_count()}})) {}

absl::StatusOr<HeldLayout> HeldLayout::Create(
    const RunLayout& layout, absl::Span<const IndexRange> spans) {
  HeldLayout held;
  held.layout_ = &layout;
  held.fragments_.resize(layout.fragment_count());
  for (const IndexRange span : spans) {
    if (span.empty()) continue;
    if (span.begin < 0 || span.end > layout.element_count() ||
        (!held.spans_.empty() && span.begin < held.spans_.back().end)) {
      return Misfit(span, "are not in order within the model");
    }
    Append(held.spans_, span);
  }
  auto span = held.spans_.begin();
  for (const TensorPlace& tensor : layout.tensors()) {
    const IndexRange all = {tensor.model_offset,
                            tensor.model_offset + tensor.element_count};
    Fragment& fragment = held.fragments_[tensor.fragment];
    while (span != held.spans_.end() && span->begin < all.end) {
      const IndexRange at = {std::max(span->begin, all.begin) - all.begin,
                             std::min(span->end, all.end) - all.begin};
      if (at.begin % codec::kBlockElements != 0 ||
          (at.end % codec::kBlockElements != 0 &&
           at.end != tensor.element_count)) {
        return Misfit(*span, absl::StrCat("cut a block of ", tensor.name));
      }
      HeldPiece piece;
      piece.tensor = tensor.tensor;
      piece.tensor_offset = at.begin;
      piece.held_offset = held.element_count_;
      piece.fragment_offset = fragment.element_count;
      piece.element_count = at.size();
      fragment.pieces.push_back(piece);
      Append(fragment.blocks,
             {tensor.first_block + at.begin / codec::kBlockElements,
              tensor.first_block + codec::BlockCount(at.end)});
      held.element_count_ += piece.element_count;
      fragment.element_count += piece.element_count;
      if (span->end > all.end) break;
      ++span;
    }
  }
  return held;
}

int64_t HeldLayout::fragment_element_count_max() const {
  int64_t count = 0;
  for (const Fragment& fragment : fragments_) {
    count = std::max(count, fragment.element_count);
  }
  return count;
}

std::vector<std::vector<IndexRange>> HeldLayout::blocks() const {
  std::vector<std::vector<IndexRange>> blocks;
  for (const Fragment& fragment : fragments_) blocks.push_back(fragment.blocks);
  return blocks;
}

}  // namespace atl
