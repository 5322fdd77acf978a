// The numbers of one optimizer step. Pure.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/optimizer_options.h"

namespace atl::engine {

// The factor for a gradient of global norm `norm`. clip_grad_norm_ adds 1e-6 to
// the norm that it divides by.
inline double ClipFactor(const OptimizerOptions& options, double norm) {
  if (options.clip_norm <= 0) return 1.0;
  return std::min(1.0, options.clip_norm / (norm + 1e-6));
}

// The `step_count`-th step (from 1). All parameters are decayed alike.
template <typename T>
AdamWStep<T> AdamWStepAt(const OptimizerOptions& options, int64_t step_count,
                         double learning_rate, double gradient_scale) {
  const double t = static_cast<double>(step_count);
  AdamWStep<T> step;
  step.learning_rate = static_cast<T>(learning_rate);
  step.beta1 = static_cast<T>(options.beta1);
  step.beta2 = static_cast<T>(options.beta2);
  step.epsilon = static_cast<T>(options.epsilon);
  step.weight_decay = static_cast<T>(options.weight_decay);
  step.bias_correction1 = static_cast<T>(1.0 - std::pow(options.beta1, t));
  step.bias_correction2_sqrt =
      static_cast<T>(std::sqrt(1.0 - std::pow(options.beta2, t)));
  step.gradient_scale = static_cast<T>(gradient_scale);
  return step;
}

}  // namespace atl::engine
