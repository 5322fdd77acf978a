#include "server/core/merge/merge_rule.h"

#include "base/status/check.h"

namespace atl::server {

void MergeRule::Add(const MergeKernels& kernels, int index, float weight,
                    int64_t n, const float* x, float* g) const {
  CHECK(!"this rule takes rows");
}

codec::BlockFault MergeRule::AddEncoded(const codec::Codec& codec, int index,
                                        float weight, absl::string_view encoded,
                                        absl::Span<float> g) const {
  CHECK(!"this rule takes rows");
  return codec::BlockFault::kNone;
}

void MergeRule::MergeRows(const MergeKernels& kernels, int64_t n,
                          int contribution_count, float* const* x,
                          float* g) const {
  CHECK(!"this rule takes one contribution at a time");
}

MergeNeeds FindNeeds(const v1::MergeSpec& spec) {
  switch (spec.rule()) {
    case v1::MERGE_RULE_KIND_NORM_CLIP:
      return MergeNeeds::kNorms;
    case v1::MERGE_RULE_KIND_RDA:
    case v1::MERGE_RULE_KIND_CENTRED_CLIP:
    case v1::MERGE_RULE_KIND_KRUM:
    case v1::MERGE_RULE_KIND_MDA:
      return MergeNeeds::kProducts;
    default:
      return MergeNeeds::kNothing;
  }
}

std::unique_ptr<MergeRule> MakeMergeRule(const v1::OuterSpec& spec) {
  switch (spec.merge().rule()) {
    case v1::MERGE_RULE_KIND_TRIMMED_MEAN:
      return MakeTrimmedMean(spec.merge().byzantine_count());
    case v1::MERGE_RULE_KIND_MEDIAN:
      return MakeMedian();
    default:
      // The weights of the seal, or the coefficients of the verdict.
      return MakeWeightedSum();
  }
}

}  // namespace atl::server
