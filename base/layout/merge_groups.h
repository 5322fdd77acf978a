// Which tensors of a fragment a merge looks at together.
//
// Pure. Immutable after it is made, so thread-safe.
//
// A rule with a verdict has one Gram matrix and one row of coefficients a
// group: RDA groups of one tensor each, without those of the classes that it
// merges by the plain mean; the others one group, the whole fragment. Tensors
// of no group are merged with the seal's weights.

#ifndef BASE_LAYOUT_MERGE_GROUPS_H_
#define BASE_LAYOUT_MERGE_GROUPS_H_

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"

namespace atl {

class MergeGroups {
 public:
  static constexpr int kNone = -1;

  // Of `fragment` of `layout`, which is the one of `spec`.
  MergeGroups(const RunLayout& layout, const v1::RunSpec& spec,
              int32_t fragment);

  int count() const { return count_; }
  // Group of the tensor with this index in the layout, in [0, count()), or
  // kNone. Requires: the tensor is of the fragment.
  int FindGroup(int32_t tensor) const {
    return groups_[tensor - first_tensor_];
  }

 private:
  int count_ = 0;
  int32_t first_tensor_ = 0;
  std::vector<int> groups_;  // From first_tensor_ to the fragment's last.
};

}  // namespace atl

#endif  // BASE_LAYOUT_MERGE_GROUPS_H_
