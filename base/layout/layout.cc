#include "base/layout/layout.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/codec/block_grid.h"
#include "base/codec/sha256.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

absl::Status TensorError(const v1::TensorSpec& tensor, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layout tensor \"", tensor.name(), "\": ", what));
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

absl::Status ValidateTensor(const v1::TensorSpec& tensor,
                            int32_t fragment_count) {
  if (tensor.name().empty() || tensor.name().size() > 256 ||
      !std::all_of(tensor.name().begin(), tensor.name().end(),
                   IsNameCharacter)) {
    return TensorError(
        tensor, "its name must be 1 to 256 of A-Z, a-z, 0-9, '.', '_', '-'");
  }
  if (tensor.dtype() != v1::DATA_TYPE_F32) {
    return TensorError(tensor, "dtype must be DATA_TYPE_F32");
  }
  if (tensor.tensor_class() != v1::TENSOR_CLASS_MATRIX &&
      tensor.tensor_class() != v1::TENSOR_CLASS_EMBEDDING &&
      tensor.tensor_class() != v1::TENSOR_CLASS_VECTOR &&
      tensor.tensor_class() != v1::TENSOR_CLASS_BUFFER) {
    return TensorError(tensor, "tensor_class is not set");
  }
  if (tensor.fragment() < 0 || tensor.fragment() >= fragment_count) {
    return TensorError(
        tensor, absl::StrCat("fragment ", tensor.fragment(), " is not in [0, ",
                             fragment_count, ")"));
  }
  if (tensor.init().kind() != v1::INIT_KIND_CONSTANT &&
      tensor.init().kind() != v1::INIT_KIND_NORMAL) {
    return TensorError(tensor, "init.kind is not set");
  }
  if (!std::isfinite(tensor.init().value()) ||
      (tensor.init().kind() == v1::INIT_KIND_NORMAL &&
       tensor.init().value() < 0)) {
    return TensorError(tensor,
                       "init.value must be finite, and >= 0 for NORMAL");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ElementCount(const v1::TensorSpec& tensor) {
  if (tensor.shape().empty()) {
    return TensorError(tensor, "shape has no dimension");
  }
  int64_t count = 1;
  for (int64_t dimension : tensor.shape()) {
    if (dimension < 1) {
      return TensorError(
          tensor, absl::StrCat("dimension ", dimension, " is not positive"));
    }
    if (dimension > RunLayout::kMaxElements / count) {
      return TensorError(tensor, "has more than 2^40 elements");
    }
    count *= dimension;
  }
  return count;
}

uint64_t Fingerprint(const v1::Layout& layout) {
  std::string text =
      absl::StrCat("atoll layout 1 ", layout.fragment_count(), "\n");
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    absl::StrAppend(&text, tensor.name(), " ", static_cast<int>(tensor.dtype()),
                    " ", static_cast<int>(tensor.tensor_class()), " ",
                    tensor.fragment(), " ", absl::StrJoin(tensor.shape(), "x"),
                    "\n");
  }
  const auto digest = codec::ComputeSha256(text);
  uint64_t fingerprint = 0;
  for (int i = 7; i >= 0; --i) {
    fingerprint = (fingerprint << 8) | static_cast<uint8_t>(digest[i]);
  }
  return fingerprint;
}

}  // namespace

absl::StatusOr<RunLayout> RunLayout::Create(const v1::Layout& layout) {
  if (layout.tensors().empty()) {
    return absl::InvalidArgumentError("layout has no tensors");
  }
  if (layout.tensors_size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout has ", layout.tensors_size(), " tensors; at most ",
                     kMaxTensors, " are allowed"));
  }
  if (layout.fragment_count() < 1 ||
      layout.fragment_count() > layout.tensors_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout fragment_count ", layout.fragment_count(),
                     " must be at least 1 and at most the number of tensors (",
                     layout.tensors_size(), ")"));
  }
  RunLayout result;
  result.fragments_.resize(layout.fragment_count());
  absl::flat_hash_set<std::string> names;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    RETURN_IF_ERROR(ValidateTensor(tensor, layout.fragment_count()));
    ASSIGN_OR_RETURN(const int64_t element_count, ElementCount(tensor));
    if (!names.insert(tensor.name()).second) {
      return TensorError(tensor, "another tensor has the same name");
    }
    Fragment& fragment = result.fragments_[tensor.fragment()];
    TensorPlace place;
    place.name = tensor.name();
    place.tensor = static_cast<int32_t>(result.tensors_.size());
    place.fragment = tensor.fragment();
    place.is_buffer = tensor.tensor_class() == v1::TENSOR_CLASS_BUFFER;
    place.element_count = element_count;
    place.model_offset = result.element_count_;
    place.fragment_offset = fragment.element_count;
    place.first_block = fragment.block_count;
    place.block_count = codec::BlockCount(element_count);
    fragment.tensors.push_back(place.tensor);
    fragment.element_count += place.element_count;
    fragment.block_count += place.block_count;
    fragment.has_buffers |= place.is_buffer;
    result.element_count_ += place.element_count;
    if (result.element_count_ > kMaxElements) {
      return absl::InvalidArgumentError("layout has more than 2^40 elements");
    }
    result.tensors_.push_back(std::move(place));
  }
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    if (result.fragments_[f].tensors.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout fragment ", f, " has no tensor"));
    }
  }
  result.fingerprint_ = Fingerprint(layout);
  return result;
}

const TensorPlace& RunLayout::BlockTensor(int32_t fragment,
                                          int64_t block) const {
  const std::vector<int32_t>& tensors = fragments_[fragment].tensors;
  const auto after = std::upper_bound(
      tensors.begin(), tensors.end(), block,
      [this](int64_t b, int32_t t) { return b < tensors_[t].first_block; });
  return tensors_[*(after - 1)];
}

int64_t RunLayout::BlockOffset(int32_t fragment, int64_t block) const {
  if (block >= fragments_[fragment].block_count) {
    return fragments_[fragment].element_count;
  }
  const TensorPlace& tensor = BlockTensor(fragment, block);
  return tensor.fragment_offset +
         (block - tensor.first_block) * codec::kBlockElements;
}

IndexRange RunLayout::BlockElements(int32_t fragment, IndexRange blocks) const {
  return {BlockOffset(fragment, blocks.begin),
          BlockOffset(fragment, blocks.end)};
}

int64_t RunLayout::FirstBlockAt(int32_t fragment, int64_t element) const {
  int64_t low = 0;
  int64_t high = fragments_[fragment].block_count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (BlockOffset(fragment, middle) < element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

IndexRange RunLayout::ShardBlocks(int32_t fragment, int32_t shard,
                                  int32_t shard_count) const {
  const int64_t count = fragments_[fragment].element_count;
  // count <= 2^40 and shard_count < 2^23, so the product fits.
  return {FirstBlockAt(fragment, count * shard / shard_count),
          FirstBlockAt(fragment, count * (shard + 1) / shard_count)};
}

}  // namespace atl
