// Groups of a fragment's tensors that a merge rule handles together. Pure.
// Immutable after construction, so thread-safe.
//
// A rule with a verdict has one Gram matrix and one row of coefficients for
// each group. RDA has one group for each tensor, except buffers and tensors of
// the classes that it merges by the plain mean. The other such rules have one
// group, the whole fragment. A tensor in no group is merged with the seal's
// weights.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"

namespace atl {

class MergeGroups {
 public:
  static constexpr int kNone = -1;

  // Requires: `layout` is the layout of `spec`.
  MergeGroups(const RunLayout& layout, const v1::RunSpec& spec,
              int32_t fragment);

  int count() const { return count_; }
  // The group in [0, count()) of the tensor with this layout index, or kNone.
  // Requires: the tensor belongs to the fragment.
  int FindGroup(int32_t tensor) const {
    return groups_[tensor - first_tensor_];
  }

 private:
  int count_ = 0;
  int32_t first_tensor_ = 0;
  std::vector<int> groups_;  // From first_tensor_ to the fragment's last.
};

}  // namespace atl
