// Makers for MakeOuterOptimizer only, each defined in the file of its name.
// INVALID_ARGUMENT: a constant is out of range; the message names the field.

#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "server/core/outer_optimizer/outer_optimizer.h"

namespace atl::server {

using MadeOptimizer = absl::StatusOr<std::unique_ptr<OuterOptimizer>>;

MadeOptimizer MakeSgd(const v1::OuterSpec& spec);
// `name` must outlive the optimizer.
MadeOptimizer MakeMomentum(const v1::OuterSpec& spec, absl::string_view name);
MadeOptimizer MakeNesterov(const v1::OuterSpec& spec);
MadeOptimizer MakeFedAvg(const v1::OuterSpec& spec);
MadeOptimizer MakeFedAvgM(const v1::OuterSpec& spec);
MadeOptimizer MakeFedAdam(const v1::OuterSpec& spec);
MadeOptimizer MakeFedYogi(const v1::OuterSpec& spec);
MadeOptimizer MakeFedAdagrad(const v1::OuterSpec& spec);
MadeOptimizer MakeDelayedNesterov(const v1::OuterSpec& spec);

absl::Status CheckPositive(absl::string_view field, double value);
absl::Status CheckFraction(absl::string_view field, double value);  // [0, 1).
// Checks the adaptive rules' constants; `with_beta2` if the rule reads beta2.
absl::Status CheckAdaptive(const v1::OuterSpec& spec, bool with_beta2);

// The adaptive rules' constants in f32; 1 - beta in f64, rounded once.
OuterKernels::Adaptive MakeAdaptive(const v1::OuterSpec& spec);
// v at version 0: tau^2, computed in f64 and rounded once.
float InitialSecondMoment(const v1::OuterSpec& spec);

}  // namespace atl::server
