// m = momentum m + g; theta = theta - lr m: PyTorch's SGD with momentum, no
// dampening.

#include <memory>

#include "base/status/status_macros.h"
#include "server/core/outer_optimizer/choices.h"

namespace atl::server {
namespace {

class Momentum final : public OuterOptimizer {
 public:
  Momentum(const v1::OuterSpec& spec, absl::string_view name)
      : name_(name),
        lr_(static_cast<float>(spec.learning_rate())),
        momentum_(static_cast<float>(spec.momentum())) {}

  absl::string_view name() const override { return name_; }
  int state_count() const override { return 1; }
  // -0 and not 0: momentum * -0 + g is g for every g, -0 included. So the first
  // step takes g itself, as PyTorch does.
  float initial_state(int i) const override { return -0.0f; }
  void Step(const OuterKernels& kernels, const OuterTile& tile) const override {
    kernels.Momentum(lr_, momentum_, tile);
  }

 private:
  const absl::string_view name_;
  const float lr_;
  const float momentum_;
};

}  // namespace

MadeOptimizer MakeMomentum(const v1::OuterSpec& spec, absl::string_view name) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.momentum", spec.momentum()));
  return std::make_unique<Momentum>(spec, name);
}

}  // namespace atl::server
