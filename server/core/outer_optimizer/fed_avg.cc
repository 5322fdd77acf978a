// theta = theta - g: the mean of the islands' parameters, because a round's
// weights sum to one. Ignores the learning rate.

#include <memory>

#include "server/core/outer_optimizer/choices.h"

namespace atl::server {
namespace {

class FedAvg final : public OuterOptimizer {
 public:
  absl::string_view name() const override { return "fedavg"; }
  int state_count() const override { return 0; }
  float initial_state(int i) const override { return 0.0f; }
  void Step(const OuterKernels& kernels, const OuterTile& tile) const override {
    kernels.Sgd(1.0f, tile);
  }
};

}  // namespace

MadeOptimizer MakeFedAvg(const v1::OuterSpec& spec) {
  return std::make_unique<FedAvg>();
}

}  // namespace atl::server
