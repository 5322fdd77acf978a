// Delayed Nesterov (arXiv 2401.09135, algorithm 3). Every merge steps the
// parameters by its own share, but the momentum is updated only with the mean
// of each N of them. Otherwise N contributions that arrive one by one would
// push the momentum N times as far as N that arrive together.
//
//   sum = sum + g
//   each N-th step: m = momentum m + sum / N; sum = 0;
//                   theta = theta - lr ((1 - c N + c) momentum m + g / N)
//   each other:     theta = theta - lr (c momentum m + g / N)

#include <cmath>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/core/outer_optimizer/choices.h"

namespace atl::server {
namespace {

class DelayedNesterov final : public OuterOptimizer {
 public:
  explicit DelayedNesterov(const v1::OuterSpec& spec)
      : buffer_count_(spec.buffer_count()) {
    const double n = spec.buffer_count();
    const double c = spec.momentum_share();
    constants_.lr = static_cast<float>(spec.learning_rate());
    constants_.momentum = static_cast<float>(spec.momentum());
    constants_.buffer_count = static_cast<float>(n);
    constants_.carried = static_cast<float>(c * spec.momentum());
    constants_.flushed =
        static_cast<float>((1.0 - c * n + c) * spec.momentum());
  }

  absl::string_view name() const override { return "delayed nesterov"; }
  int state_count() const override { return 2; }
  // m and the sum start at -0 for the reason in nesterov.cc.
  float initial_state(int i) const override { return -0.0f; }
  void Step(const OuterKernels& kernels, const OuterTile& tile) const override {
    const bool flush = (tile.version + 1) % buffer_count_ == 0;
    kernels.DelayedNesterov(constants_, flush, tile);
  }

 private:
  const int64_t buffer_count_;
  OuterKernels::Delayed constants_;
};

}  // namespace

MadeOptimizer MakeDelayedNesterov(const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.momentum", spec.momentum()));
  if (spec.buffer_count() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "outer.buffer_count is ", spec.buffer_count(), ", but must be >= 1"));
  }
  if (!(spec.momentum_share() >= 0 &&
        spec.momentum_share() * spec.buffer_count() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("outer.momentum_share is ", spec.momentum_share(),
                     ", but must be in [0, 1 / outer.buffer_count]"));
  }
  return std::make_unique<DelayedNesterov>(spec);
}

}  // namespace atl::server
