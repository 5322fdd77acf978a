#include "worker/engine/optimizer/optimizer_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace atl::engine {
namespace {

absl::Status Refuse(const char* field, double value, const char* range) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer: ", field, " is ", value, ", not ", range));
}

}  // namespace

absl::Status ValidateOptimizerOptions(const OptimizerOptions& options) {
  if (!(options.clip_norm >= 0 && std::isfinite(options.clip_norm))) {
    return Refuse("clip_norm", options.clip_norm, ">= 0 and finite");
  }
  if (options.kind == OptimizerKind::kSgd) return absl::OkStatus();
  if (!(options.beta1 >= 0 && options.beta1 < 1)) {
    return Refuse("beta1", options.beta1, "in [0, 1)");
  }
  if (!(options.beta2 >= 0 && options.beta2 < 1)) {
    return Refuse("beta2", options.beta2, "in [0, 1)");
  }
  if (!(options.epsilon > 0 && std::isfinite(options.epsilon))) {
    return Refuse("epsilon", options.epsilon, "> 0 and finite");
  }
  if (!(options.weight_decay >= 0 && std::isfinite(options.weight_decay))) {
    return Refuse("weight_decay", options.weight_decay, ">= 0 and finite");
  }
  return absl::OkStatus();
}

}  // namespace atl::engine
