#include "server/core/outer_optimizer/outer_optimizer.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/core/outer_optimizer/choices.h"

namespace atl::server {

absl::StatusOr<std::unique_ptr<OuterOptimizer>> MakeOuterOptimizer(
    const v1::OuterSpec& spec) {
  switch (spec.optimizer()) {
    case v1::OUTER_OPTIMIZER_KIND_SGD:
      return MakeSgd(spec);
    case v1::OUTER_OPTIMIZER_KIND_MOMENTUM:
      return MakeMomentum(spec, "momentum");
    case v1::OUTER_OPTIMIZER_KIND_NESTEROV:
      return MakeNesterov(spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDAVG:
      return MakeFedAvg(spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDAVGM:
      return MakeFedAvgM(spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDADAM:
      return MakeFedAdam(spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDYOGI:
      return MakeFedYogi(spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD:
      return MakeFedAdagrad(spec);
    case v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV:
      return MakeDelayedNesterov(spec);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("outer.optimizer ", static_cast<int>(spec.optimizer()),
                       " is unknown to this server"));
  }
}

absl::Status CheckPositive(absl::string_view field, double value) {
  if (std::isfinite(value) && value > 0 &&
      std::isfinite(static_cast<float>(value))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", but must be > 0 and finite"));
}

absl::Status CheckFraction(absl::string_view field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", but must be in [0, 1)"));
}

absl::Status CheckAdaptive(const v1::OuterSpec& spec, bool with_beta2) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.beta1", spec.beta1()));
  if (with_beta2) RETURN_IF_ERROR(CheckFraction("outer.beta2", spec.beta2()));
  return CheckPositive("outer.tau", spec.tau());
}

OuterKernels::Adaptive MakeAdaptive(const v1::OuterSpec& spec) {
  OuterKernels::Adaptive constants;
  constants.lr = static_cast<float>(spec.learning_rate());
  constants.beta1 = static_cast<float>(spec.beta1());
  constants.one_minus_beta1 = static_cast<float>(1.0 - spec.beta1());
  constants.beta2 = static_cast<float>(spec.beta2());
  constants.one_minus_beta2 = static_cast<float>(1.0 - spec.beta2());
  constants.tau = static_cast<float>(spec.tau());
  return constants;
}

float InitialSecondMoment(const v1::OuterSpec& spec) {
  return static_cast<float>(spec.tau() * spec.tau());
}

}  // namespace atl::server
