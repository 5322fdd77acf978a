#include "server/core/merge/merge_rule.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "server/kernels/loop_table.h"

namespace atl::server {
namespace {

using kernels::BestLoops;

// g = w_0 x_0 + w_1 x_1 + ..., from the left, in f32; each product is rounded
// before it is added. If the weights sum to one, this is federated averaging's
// weighted mean (arXiv 1602.05629, algorithm 1).
class WeightedSum final : public MergeRule {
 public:
  absl::string_view name() const override { return "weighted sum"; }

  void Add(int index, float weight, int64_t n, const float* x,
           float* g) const override {
    if (index == 0) {
      BestLoops().scale(n, weight, x, g);
    } else {
      BestLoops().accumulate(n, weight, x, g);
    }
  }
  codec::BlockFault AddEncoded(const codec::Codec& codec, int index,
                               float weight, absl::string_view encoded,
                               absl::Span<float> g) const override {
    return index == 0 ? codec.DecodeScaled(encoded, weight, g)
                      : codec.DecodeAccumulate(encoded, weight, g);
  }
};

// The coordinate-wise trimmed mean (arXiv 1803.01498, definition 2): the mean
// of every element without its `trim_count` least and greatest values, fewer if
// that would leave none. Added in ascending order, so that the order of the
// islands does not matter. The median (definition 1), the middle value of every
// element or the mean of the two middle ones, trims all that it may.
class TrimmedMean final : public MergeRule {
 public:
  TrimmedMean(absl::string_view name, int trim_count)
      : name_(name), trim_count_(trim_count) {}

  absl::string_view name() const override { return name_; }
  bool takes_rows() const override { return true; }

  void MergeRows(int64_t n, int contribution_count, float* const* x,
                 float* g) const override {
    const int trim = std::min(trim_count_, (contribution_count - 1) / 2);
    BestLoops().sort_rows(n, contribution_count, x);
    BestLoops().mean_of_rows(n, contribution_count - 2 * trim, x + trim, g);
  }

 private:
  const absl::string_view name_;
  const int trim_count_;
};

}  // namespace

void MergeRule::Add(int index, float weight, int64_t n, const float* x,
                    float* g) const {
  CHECK(!"this rule takes rows");
}

codec::BlockFault MergeRule::AddEncoded(const codec::Codec& codec, int index,
                                        float weight, absl::string_view encoded,
                                        absl::Span<float> g) const {
  CHECK(!"this rule takes rows");
  return codec::BlockFault::kNone;
}

void MergeRule::MergeRows(int64_t n, int contribution_count, float* const* x,
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

absl::StatusOr<std::unique_ptr<MergeRule>> MakeMergeRule(
    const v1::OuterSpec& spec) {
  switch (spec.merge().rule()) {
    case v1::MERGE_RULE_KIND_TRIMMED_MEAN:
      return std::make_unique<TrimmedMean>("trimmed mean",
                                           spec.merge().byzantine_count());
    case v1::MERGE_RULE_KIND_MEDIAN:
      return std::make_unique<TrimmedMean>("median",
                                           std::numeric_limits<int>::max());
    case v1::MERGE_RULE_KIND_UNSPECIFIED:
    case v1::MERGE_RULE_KIND_WEIGHTED_MEAN:
    case v1::MERGE_RULE_KIND_RDA:
    case v1::MERGE_RULE_KIND_NORM_CLIP:
    case v1::MERGE_RULE_KIND_CENTRED_CLIP:
    case v1::MERGE_RULE_KIND_KRUM:
    case v1::MERGE_RULE_KIND_MDA:
      // The weights of the seal, or the coefficients of the verdict.
      return std::make_unique<WeightedSum>();
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "outer.merge.rule ", static_cast<int>(spec.merge().rule()),
          " is unknown to this program"));
  }
}

}  // namespace atl::server
