// Options of the inner optimizer. Pure. Thread-compatible.

#pragma once

#include "absl/status/status.h"

namespace atl::engine {

enum class OptimizerKind {
  // theta = theta - lr * g: one multiplication, then one subtraction, each
  // rounded. No weight decay, no state.
  kSgd,
  // AdamW (arXiv 1711.05101, algorithm 2), as PyTorch computes it.
  kAdamW,
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;         // AdamW, in [0, 1).
  double beta2 = 0.95;        // AdamW, in [0, 1).
  double epsilon = 1e-8;      // AdamW, > 0.
  double weight_decay = 0.1;  // AdamW, >= 0.
  // Maximum global norm of the gradient, applied as clip_grad_norm_ does: g *
  // min(1, clip_norm / (norm + 1e-6)). 0 does not clip.
  double clip_norm = 1.0;
};

// INVALID_ARGUMENT: a value is out of its range; the message names the field.
absl::Status ValidateOptimizerOptions(const OptimizerOptions& options);

}  // namespace atl::engine
