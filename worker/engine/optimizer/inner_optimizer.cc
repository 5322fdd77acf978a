#include "worker/engine/optimizer/inner_optimizer.h"

#include <cmath>
#include <limits>

#include "base/status/status_macros.h"
#include "worker/engine/optimizer/update_rule.h"

namespace atl::engine {
absl::StatusOr<std::unique_ptr<InnerOptimizer>> InnerOptimizer::Create(
    const OptimizerOptions& options, const ParameterLayout& layout, Ops& ops) {
  std::unique_ptr<InnerOptimizer> optimizer(
      new InnerOptimizer(options, layout, ops));
  ASSIGN_OR_RETURN(
      optimizer->arena_,
      Arena::CreateFor([&](Arena& arena) { optimizer->TakeBuffers(arena); },
                       ops.memory()));
  return optimizer;
}

void InnerOptimizer::TakeBuffers(Arena& arena) {
  numbers_ = arena.Take<AdamWStep<float>>(1);
  sums_ = arena.Take<double>(2);
  scale_ = arena.Take<float>(1);
  if (options_.kind != OptimizerKind::kAdamW) return;
  for (absl::Span<float>* moment : {&first_moment_, &second_moment_}) {
    *moment = {arena.Take<float>(element_count_),
               static_cast<size_t>(element_count_)};
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
    ops_.AdamW(element_count_,
               AdamWStepAt<float>(options_, step_count_, learning_rate, scale),
               gradients, parameters, first_moment_.data(),
               second_moment_.data());
  }
  return norm;
}

void InnerOptimizer::BeginQueued(double learning_rate) {
  const AdamWStep<float> numbers = AdamWStepAt<float>(
      options_, step_count_ + 1, learning_rate, /*gradient_scale=*/1);
  ops_.FromHost(sizeof(numbers), &numbers, numbers_);
}

void InnerOptimizer::QueueStep(int64_t rows, const float* losses,
                               const float* gradients, float* parameters) {
  ops_.SumInto(rows, losses, /*squares=*/false, sums_);
  ops_.SumInto(element_count_, gradients, /*squares=*/true, sums_ + 1);
  ops_.ClipInto(sums_, options_.clip_norm, scale_);
  if (options_.kind == OptimizerKind::kSgd) {
    ops_.SgdBy(element_count_, numbers_, scale_, gradients, parameters);
    return;
  }
  ops_.AdamWBy(element_count_, numbers_, scale_, gradients, parameters,
               first_moment_.data(), second_moment_.data());
}

InnerOptimizer::Sums InnerOptimizer::EndQueued() {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  double sums[2] = {kUnknown, kUnknown};  // Stays after an error.
  ops_.ToHost(sizeof(sums), sums_, sums);
  const Sums result = {.loss = sums[0], .gradient_norm = std::sqrt(sums[1])};
  if (std::isfinite(result.loss) && std::isfinite(result.gradient_norm)) {
    ++step_count_;
  }
  return result;
}

void InnerOptimizer::Reset() {
  for (absl::Span<float> moment : {first_moment_, second_moment_}) {
    ops_.SetZero(static_cast<int64_t>(moment.size()), moment.data());
  }
  step_count_ = 0;
}

}  // namespace atl::engine
