#include "worker/engine/optimizer/inner_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/optimizer_options.h"
#include "worker/engine/optimizer/update_rule.h"

namespace atl::engine {
absl::StatusOr<std::unique_ptr<InnerOptimizer>> InnerOptimizer::Create(
    const OptimizerOptions& options, const ParameterLayout& layout, Ops& ops) {
  std::unique_ptr<InnerOptimizer> optimizer(
      new InnerOptimizer(options, layout, ops));
  if (options.kind == OptimizerKind::kAdamW) {
    const int64_t count = layout.element_count;
    Arena measure;
    measure.Take<float>(count);
    measure.Take<float>(count);
    ASSIGN_OR_RETURN(optimizer->arena_,
                     Arena::Create(measure.used_bytes(), ops.memory()));
    Arena& arena = optimizer->arena_;
    optimizer->first_moment_ = {arena.Take<float>(count),
                                static_cast<size_t>(count)};
    optimizer->second_moment_ = {arena.Take<float>(count),
                                 static_cast<size_t>(count)};
  }
  return optimizer;
}

InnerOptimizer::InnerOptimizer(const OptimizerOptions& options,
                               const ParameterLayout& layout, Ops& ops)
    : options_(options), element_count_(layout.element_count), ops_(ops) {
  for (const ParameterSpec& spec : layout.parameters) {
    const bool decayed = options.decay_vectors ||
                         spec.parameter_class != ParameterClass::kVector;
    if (!segments_.empty() && segments_.back().decayed == decayed) {
      segments_.back().element_count += spec.element_count;
    } else {
      segments_.push_back({spec.offset, spec.element_count, decayed});
    }
  }
}

double InnerOptimizer::Step(double learning_rate, const float* gradients,
                            float* parameters) {
  const double norm = std::sqrt(ops_.SumOfSquares(element_count_, gradients));
  if (!std::isfinite(norm)) return norm;
  const double scale = ClipFactor(options_, norm);
  ++step_count_;
  if (options_.kind == OptimizerKind::kSgd) {
    ops_.Sgd(element_count_, static_cast<float>(learning_rate),
             static_cast<float>(scale), gradients, parameters);
  } else {
    StepAdamW(learning_rate, scale, gradients, parameters);
  }
  return norm;
}

void InnerOptimizer::StepAdamW(double learning_rate, double gradient_scale,
                               const float* gradients, float* parameters) {
  AdamWStep<float> step = AdamWStepAt<float>(options_, step_count_,
                                             learning_rate, gradient_scale);
  for (const Segment& segment : segments_) {
    step.weight_decay =
        segment.decayed ? static_cast<float>(options_.weight_decay) : 0.0f;
    ops_.AdamW(segment.element_count, step, gradients + segment.offset,
               parameters + segment.offset,
               first_moment_.data() + segment.offset,
               second_moment_.data() + segment.offset);
  }
}

void InnerOptimizer::Reset() {
  for (absl::Span<float> moment : {first_moment_, second_moment_}) {
    ops_.SetZero(static_cast<int64_t>(moment.size()), moment.data());
  }
  step_count_ = 0;
}

}  // namespace atl::engine
