// FedAdam (arXiv 2003.00295, algorithm 2), with Delta = -g:
//   m = beta1 m + (1 - beta1) Delta
//   v = beta2 v + (1 - beta2) Delta^2
//   theta = theta + lr m / (sqrt(v) + tau)
// m starts at 0, v at tau^2; no bias correction.

#include <memory>

#include "base/status/status_macros.h"
#include "server/core/outer_optimizer/choices.h"

namespace atl::server {
namespace {

class FedAdam final : public OuterOptimizer {
 public:
  explicit FedAdam(const v1::OuterSpec& spec)
      : constants_(MakeAdaptive(spec)), v0_(InitialSecondMoment(spec)) {}

  absl::string_view name() const override { return "fedadam"; }
  int state_count() const override { return 2; }
  float initial_state(int i) const override { return i == 0 ? 0.0f : v0_; }
  void Step(const OuterKernels& kernels, const OuterTile& tile) const override {
    kernels.FedAdam(constants_, tile);
  }

 private:
  const OuterKernels::Adaptive constants_;
  const float v0_;
};

}  // namespace

MadeOptimizer MakeFedAdam(const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckAdaptive(spec, /*with_beta2=*/true));
  return std::make_unique<FedAdam>(spec);
}

}  // namespace atl::server
