// g = w_0 x_0 + w_1 x_1 + ..., added from the left, in f32, each product
// rounded before it is added.

#include "server/core/merge/merge_rule.h"

namespace atl::server {
namespace {

class WeightedMean final : public MergeRule {
 public:
  absl::string_view name() const override { return "weighted mean"; }

  void Add(const MergeKernels& kernels, int index, float weight, int64_t n,
           const float* x, float* g) const override {
    if (index == 0) {
      kernels.Scale(n, weight, x, g);
    } else {
      kernels.Accumulate(n, weight, x, g);
    }
  }
};

}  // namespace

std::unique_ptr<MergeRule> MakeWeightedMean() {
  return std::make_unique<WeightedMean>();
}

}  // namespace atl::server
