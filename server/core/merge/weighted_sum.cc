// g = w_0 x_0 + w_1 x_1 + ..., from the left, in f32; each product is rounded
// before it is added. If the weights sum to one, this is federated averaging's
// weighted mean (arXiv 1602.05629, algorithm 1).

#include "server/core/merge/merge_rule.h"

namespace atl::server {
namespace {

class WeightedSum final : public MergeRule {
 public:
  absl::string_view name() const override { return "weighted sum"; }

  void Add(const MergeKernels& kernels, int index, float weight, int64_t n,
           const float* x, float* g) const override {
    if (index == 0) {
      kernels.Scale(n, weight, x, g);
    } else {
      kernels.Accumulate(n, weight, x, g);
    }
  }
  codec::BlockFault AddEncoded(const codec::Codec& codec, int index,
                               float weight, absl::string_view encoded,
                               absl::Span<float> g) const override {
    return index == 0 ? codec.DecodeScaled(encoded, weight, g)
                      : codec.DecodeAccumulate(encoded, weight, g);
  }
};

}  // namespace

std::unique_ptr<MergeRule> MakeWeightedSum() {
  return std::make_unique<WeightedSum>();
}

}  // namespace atl::server
