// The inner optimizer over flat buffers: clips by the global norm, then takes a
// step, in one pass over parameters and state.
//
// Thread-compatible. The moments may be read and written between steps: with
// the step count they are all the state there is.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/optimizer_options.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

class InnerOptimizer {
 public:
  // A fresh optimizer for parameters of `layout`. `options` must pass
  // ValidateOptimizerOptions; `ops` must outlive it.
  //
  // RESOURCE_EXHAUSTED: not enough memory for the moments.
  static absl::StatusOr<std::unique_ptr<InnerOptimizer>> Create(
      const OptimizerOptions& options, const ParameterLayout& layout, Ops& ops);

  // Updates `parameters` by `gradients`, both of layout's length. Returns the
  // gradient's global norm before clipping; if that is not finite, nothing is
  // changed.
  double Step(double learning_rate, const float* gradients, float* parameters);

  // The same in parts, for a step that is queued once and done again: the
  // numbers of the step are told to the device beforehand, and what it found is
  // read afterwards. The bits are Step's.
  //
  // BeginQueued tells the learning rate. QueueStep sums `losses` [rows] and
  // the gradient, and updates unless a sum is not finite; it reads nothing
  // back. EndQueued waits, and counts the step if it was one.
  void BeginQueued(double learning_rate);
  void QueueStep(int64_t rows, const float* losses, const float* gradients,
                 float* parameters);
  struct Sums {
    double loss = 0;
    double gradient_norm = 0;  // Before clipping.
  };
  Sums EndQueued();

  // AdamW's m and v, shape [element_count], in the memory of the operations;
  // empty for SGD.
  absl::Span<float> first_moment() { return first_moment_; }
  absl::Span<float> second_moment() { return second_moment_; }
  // Steps since the state was fresh.
  int64_t step_count() const { return step_count_; }
  void set_step_count(int64_t step_count) { step_count_ = step_count; }

  // Makes the state fresh.
  void Reset();

 private:
  // Neighbouring parameters that are treated alike.
  struct Segment {
    int64_t offset;
    int64_t element_count;
    bool decayed;
  };

  InnerOptimizer(const OptimizerOptions& options, const ParameterLayout& layout,
                 Ops& ops);
  void TakeBuffers(Arena& arena);
  void StepAdamW(double learning_rate, double gradient_scale,
                 const float* gradients, float* parameters);

  const OptimizerOptions options_;
  const int64_t element_count_;
  Ops& ops_;
  std::vector<Segment> segments_;
  Arena arena_;
  absl::Span<float> first_moment_;
  absl::Span<float> second_moment_;
  // Of a step that is queued, in memory of the operations.
  AdamWStep<float>* numbers_ = nullptr;  // [2]: with decay, and without.
  double* sums_ = nullptr;               // [2]: losses, squares.
  float* scale_ = nullptr;
  int64_t step_count_ = 0;
};

}  // namespace atl::engine
