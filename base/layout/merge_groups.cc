#include "base/layout/merge_groups.h"

#include <algorithm>

namespace atl {

MergeGroups::MergeGroups(const RunLayout& layout, const v1::RunSpec& spec,
                         int32_t fragment) {
  const v1::MergeSpec& merge = spec.outer().merge();
  const std::vector<int32_t>& tensors = layout.fragment_tensors(fragment);
  first_tensor_ = tensors.front();
  groups_.assign(tensors.back() - first_tensor_ + 1, kNone);
  switch (merge.rule()) {
    case v1::MERGE_RULE_KIND_RDA:
      for (const int32_t tensor : tensors) {
        const v1::TensorClass tensor_class =
            spec.layout().tensors(tensor).tensor_class();
        const auto& means = merge.mean_tensor_classes();
        // RDA may lengthen a mean, and so leave the range of a buffer's values.
        if (tensor_class != v1::TENSOR_CLASS_BUFFER &&
            std::find(means.begin(), means.end(), tensor_class) ==
                means.end()) {
          groups_[tensor - first_tensor_] = count_++;
        }
      }
      break;
    case v1::MERGE_RULE_KIND_NORM_CLIP:
    case v1::MERGE_RULE_KIND_CENTRED_CLIP:
    case v1::MERGE_RULE_KIND_KRUM:
    case v1::MERGE_RULE_KIND_MDA:
      for (const int32_t tensor : tensors) groups_[tensor - first_tensor_] = 0;
      count_ = 1;
      break;
    default:
      break;
  }
}

}  // namespace atl
