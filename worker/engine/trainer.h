// A replica of the model in training: parameters, gradients, inner optimizer.
//
// Create allocates all buffers, Step none. Thread-compatible: one call at a
// time. For the same parameters, optimizer state and tokens, results have the
// same bits for any `thread_count`.
//
// Flat buffers are f32 in the order of ParameterLayout. A replica may span
// several processes, each with a Trainer that holds a part of the parameters
// (held()). They all make the same calls in the same order, and share errors.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/learning_rate_schedule.h"
#include "worker/engine/optimizer/optimizer_options.h"

namespace atl::engine {

struct TrainerOptions {
  ModelConfig model;
  OptimizerOptions optimizer;
  LearningRateSchedule schedule;
  int64_t batch_size = 8;         // B: sequences per step at most, >= 1.
  int64_t sequence_length = 128;  // T, in [1, model.sequence_length_max].
  int thread_count = 1;           // Compute threads, in [1, 256].
  // Operand type of matrix products; parameters and optimizer stay f32.
  ComputeType compute = ComputeType::kF32;
};

// The optimizer's whole state: a restore keeps the bits of the next step.
struct OptimizerState {
  // AdamW's m and v of the held elements, in their order; empty for SGD.
  absl::Span<float> first_moment;
  absl::Span<float> second_moment;
  // Steps since a reset: AdamW's t of the bias correction.
  int64_t step_count = 0;
};

class Trainer {
 public:
  // Parameters start at zero: the caller fills parameters() from the servers.
  // INVALID_ARGUMENT: an option is out of range. RESOURCE_EXHAUSTED: not enough
  // memory.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(
      const TrainerOptions& options);

  // The same with a device's operations (ops/cuda/make_cuda_ops.h), which
  // define thread_count and compute. Step returns the device's errors,
  // UNAVAILABLE or RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Trainer>> CreateOn(
      const TrainerOptions& options, std::unique_ptr<Ops> ops);

  virtual ~Trainer() = default;

  virtual const ParameterLayout& layout() const = 0;

  // The elements that this process holds: spans in rising order, disjoint and
  // not adjacent. All processes together hold every element once, each in whole
  // blocks of 4096 elements from a parameter's start (its last block may be
  // shorter). A single process holds the whole layout.
  virtual absl::Span<const ParameterSpan> held() const = 0;

  // The held parameters, one span after the other. The caller may write them
  // between calls, and must then call Scatter.
  virtual absl::Span<float> parameters() = 0;
  virtual absl::Span<const float> parameters() const = 0;

  // Ranks of a mesh, and a device, compute with copies of parameters and
  // moments. Scatter gives them the contents of parameters() and
  // optimizer_state(); Gather fills these from the ranks. Call Scatter after a
  // write and before the next Step or loss. Call Gather after the last Step and
  // before a read or write. UNAVAILABLE: a rank is gone.
  //
  // A mesh keeps no second copy while it trains: between a Step that it accepts
  // and the next Gather these spans are empty and Scatter does nothing. A
  // Gather with nothing to move makes the spans available for writing: elements
  // that were neither gathered nor written since then read as 0 and take no
  // memory. One rank on a CPU has a single copy, and both calls do nothing.
  struct Movement {
    // The moved parameters: rising, disjoint spans of the model, the same in
    // all processes; nullopt: all. Both sides keep all other parameters.
    std::optional<std::vector<ParameterSpan>> parameters;
    bool moments = true;
  };
  virtual absl::Status Scatter(const Movement& what) {
    return absl::OkStatus();
  }
  virtual absl::Status Gather(const Movement& what) { return absl::OkStatus(); }
  absl::Status Scatter() { return Scatter(Movement()); }
  absl::Status Gather() { return Gather(Movement()); }

  // Step calls `before_write` on its thread before it writes what parameters()
  // and optimizer_state() show, so a reader may read them during the passes
  // before the update. A Step that writes only buffers of its own does not call
  // it. False: this Trainer never calls it, and a Step may write or release
  // these spans from its start.
  virtual bool set_before_write(std::function<void()> before_write) {
    return false;
  }

  // The caller may read or write the moments between calls.
  virtual OptimizerState optimizer_state() = 0;

  // Sets the step count of moments that were written through optimizer_state().
  // Requires `step_count` >= 0.
  virtual void set_optimizer_step_count(int64_t step_count) = 0;

  // Sets moments and step count to zero.
  virtual void ResetOptimizer() = 0;

  // One inner step: forward, backward, clip, optimizer, with the learning rate
  // LearningRateAt(schedule, step) * `learning_rate_factor`. `inputs` and
  // `targets` have shape [n, T], row-major, n in [1, batch_size]; targets[i]
  // follows inputs[i]. Returns the mean loss before the update, in nats/token.
  //
  // INVALID_ARGUMENT: a shape is wrong or a token is not in [0, V). INTERNAL,
  // NotFinite (base/status/not_finite.h): loss or gradient is not finite.
  // Neither changes parameters or optimizer.
  virtual absl::StatusOr<float> Step(absl::Span<const int32_t> inputs,
                                     absl::Span<const int32_t> targets,
                                     int64_t step,
                                     double learning_rate_factor = 1.0) = 0;

  // Global norm of the last Step's gradient, before clipping.
  virtual double gradient_norm() const = 0;

  // router_loss_weight times the last Step's load-balancing loss; 0 without
  // experts. The gradient includes it, the returned loss does not.
  virtual double router_loss() const = 0;

  // Mean loss of `inputs` and `targets` in nats per token, shape [n, T] for any
  // n >= 1. Runs in batches of batch_size and averages in f64. Changes nothing
  // but scratch. INVALID_ARGUMENT: as Step.
  virtual absl::StatusOr<double> EvaluateLoss(
      absl::Span<const int32_t> inputs, absl::Span<const int32_t> targets) = 0;

  // Logits [V] of the token after `tokens`, which holds 1 to T tokens; valid
  // until the next call. Each call computes the whole prefix (there is no
  // key/value cache). INVALID_ARGUMENT: as Step.
  virtual absl::StatusOr<absl::Span<const float>> NextTokenLogits(
      absl::Span<const int32_t> tokens) = 0;
};

}  // namespace atl::engine
