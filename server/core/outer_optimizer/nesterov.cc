// m = momentum m + g; theta = theta - lr (g + momentum m): PyTorch's SGD with
// nesterov = True.

#include <memory>

#include "base/status/status_macros.h"
#include "server/core/outer_optimizer/choices.h"

namespace atl::server {
namespace {

class Nesterov final : public OuterOptimizer {
 public:
  explicit Nesterov(const v1::OuterSpec& spec)
      : lr_(static_cast<float>(spec.learning_rate())),
        momentum_(static_cast<float>(spec.momentum())) {}

  absl::string_view name() const override { return "nesterov"; }
  int state_count() const override { return 1; }
  // -0 and not 0: momentum * -0 + g is g for every g, -0 included. So the first
  // step takes g itself, as PyTorch does.
  float initial_state(int i) const override { return -0.0f; }
  void Step(const OuterKernels& kernels, const OuterTile& tile) const override {
    kernels.Nesterov(lr_, momentum_, tile);
  }

 private:
  const float lr_;
  const float momentum_;
};

}  // namespace

MadeOptimizer MakeNesterov(const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.momentum", spec.momentum()));
  return std::make_unique<Nesterov>(spec);
}

}  // namespace atl::server
