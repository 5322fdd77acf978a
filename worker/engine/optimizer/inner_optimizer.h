// The inner optimizer over flat buffers: clips by the global norm and updates,
// in one pass. Thread-compatible. The moments and the step count are the whole
// state; the caller may read and write the moments between steps.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/optimizer_options.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

class InnerOptimizer {
 public:
  // `options` must pass ValidateOptimizerOptions; `ops` must outlive the
  // optimizer. RESOURCE_EXHAUSTED: not enough memory for the moments.
  static absl::StatusOr<std::unique_ptr<InnerOptimizer>> Create(
      const OptimizerOptions& options, const ParameterLayout& layout, Ops& ops);

  // Updates `parameters` by `gradients`, both of layout's length. Returns the
  // global norm before clipping; if it is not finite, changes nothing.
  double Step(double learning_rate, const float* gradients, float* parameters);

  // Step in parts, with the same bits, for a step that is queued once and
  // replayed. BeginQueued sends the learning rate to the device. QueueStep sums
  // `losses` [rows] and the gradient, and updates unless a sum is not finite;
  // it reads nothing back. EndQueued waits, and counts the step if both are
  // finite.
  void BeginQueued(double learning_rate);
  void QueueStep(int64_t rows, const float* losses, const float* gradients,
                 float* parameters);
  struct Sums {
    double loss = 0;
    double gradient_norm = 0;  // Before clipping.
  };
  Sums EndQueued();

  // AdamW's m and v, [element_count], in the operations' memory; empty for SGD.
  absl::Span<float> first_moment() { return first_moment_; }
  absl::Span<float> second_moment() { return second_moment_; }
  int64_t step_count() const { return step_count_; }
  void set_step_count(int64_t step_count) { step_count_ = step_count; }

  void Reset();

 private:
  InnerOptimizer(const OptimizerOptions& options, const ParameterLayout& layout,
                 Ops& ops)
      : options_(options), element_count_(layout.element_count), ops_(ops) {}
  void TakeBuffers(Arena& arena);

  const OptimizerOptions options_;
  const int64_t element_count_;
  Ops& ops_;
  Arena arena_;
  absl::Span<float> first_moment_;
  absl::Span<float> second_moment_;
  // Values of a queued step, in the memory of the operations.
  AdamWStep<float>* numbers_ = nullptr;
  double* sums_ = nullptr;  // [2]: losses, squares.
  float* scale_ = nullptr;
  int64_t step_count_ = 0;
};

}  // namespace atl::engine
