// theta = theta - lr g.

#include <memory>

#include "base/status/status_macros.h"
#include "server/core/outer_optimizer/choices.h"

namespace atl::server {
namespace {

class Sgd final : public OuterOptimizer {
 public:
  explicit Sgd(const v1::OuterSpec& spec)
      : lr_(static_cast<float>(spec.learning_rate())) {}

  absl::string_view name() const override { return "sgd"; }
  int state_count() const override { return 0; }
  float initial_state(int i) const override { return 0.0f; }
  void Step(const OuterKernels& kernels, const OuterTile& tile) const override {
    kernels.Sgd(lr_, tile);
  }

 private:
  const float lr_;
};

}  // namespace

MadeOptimizer MakeSgd(const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  return std::make_unique<Sgd>(spec);
}

}  // namespace atl::server
