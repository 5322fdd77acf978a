// One replica of the model that trains: parameters, gradients, inner optimizer.
//
// It is what the island loop uses. All buffers are made by Create; a step makes
// none. Thread-compatible: one call at a time. Given the same parameters,
// optimizer state and tokens, the result of a call has the same bits whatever
// `thread_count` is.
//
// Flat buffers are in the order of ParameterLayout, f32. A replica may lie in
// several processes, each with a Trainer that holds a part of the parameters:
// "held" below. All of them then make the same calls in the same order, and an
// error of one is an error of all.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

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
  int64_t batch_size = 8;         // B: sequences a step at most, >= 1.
  int64_t sequence_length = 128;  // T, in [1, model.sequence_length_max].
  int thread_count = 1;           // Threads that compute, in [1, 256].
  // What matrices are multiplied in; parameters and optimizer stay f32.
  ComputeType compute = ComputeType::kF32;
};

// All that the inner optimizer carries from step to step. Saved and restored,
// the next step has the same bits.
struct OptimizerState {
  // AdamW's m and v, of the elements held, in their order; empty for SGD.
  absl::Span<float> first_moment;
  absl::Span<float> second_moment;
  // Steps taken since the state was fresh: AdamW's t of the bias correction.
  int64_t step_count = 0;
};

class Trainer {
 public:
  // Parameters start at zero: the caller fills parameters() from the servers.
  // The optimizer starts fresh.
  //
  // INVALID_ARGUMENT: an option is out of range. RESOURCE_EXHAUSTED: there is
  // not enough memory.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(
      const TrainerOptions& options);

  // The same with operations of a device (ops/cuda/make_cuda_ops.h) in place of
  // those of the CPU; thread_count and compute are theirs. The device's errors
  // come back from Step, UNAVAILABLE or RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Trainer>> CreateOn(
      const TrainerOptions& options, std::unique_ptr<Ops> ops);

  virtual ~Trainer() = default;

  virtual const ParameterLayout& layout() const = 0;

  // What this process holds: disjoint, rising, not touching. All processes
  // together hold every element once, each whole blocks of 4096 elements from a
  // parameter's start (its last may be shorter). Alone: all of the layout.
  virtual absl::Span<const ParameterSpan> held() const = 0;

  // The parameters that are held, one span after the other. May be written
  // between calls, which Scatter then has to be told.
  virtual absl::Span<float> parameters() = 0;
  virtual absl::Span<const float> parameters() const = 0;

  // Where a replica lies in several ranks, they compute with parameters and
  // moments of their own. Scatter gives them what parameters() and
  // optimizer_state() hold; Gather fills these with what the ranks have. So:
  // Scatter after writing and before the next Step or loss, Gather after the
  // last Step and before reading or writing: several ranks keep no second copy
  // while they train, so from a Step that was accepted to the next Gather these
  // spans are empty, and Scatter does nothing. One rank alone on a CPU has but
  // one copy, and they do nothing; on a device they copy between its memory and
  // the host's.
  //
  // UNAVAILABLE: a rank is gone.
  virtual absl::Status Scatter() { return absl::OkStatus(); }
  virtual absl::Status Gather() { return absl::OkStatus(); }

  // `before_write` is called by Step before it writes what parameters() and
  // optimizer_state() show, so that they may be read beside the passes before
  // its update; not at all by one that writes buffers of its own. From the
  // thread that calls Step. False: this Trainer calls nothing, and a Step may
  // write, or give back, what they show from its begin on.
  virtual bool set_before_write(std::function<void()> before_write) {
    return false;
  }

  // Gradients of the last Step, before clipping, of the elements held. Empty
  // where several ranks compute, or a device.
  virtual absl::Span<const float> gradients() const = 0;

  // Views of the optimizer's state; the moments may be read or overwritten
  // between calls.
  virtual OptimizerState optimizer_state() = 0;

  // Sets the step count that belongs to moments written through
  // optimizer_state(). Requires `step_count` >= 0.
  virtual void set_optimizer_step_count(int64_t step_count) = 0;

  // Sets the state to fresh: moments and step count zero.
  virtual void ResetOptimizer() = 0;

  // One inner step: forward, backward, clip, optimizer, with the learning rate
  // LearningRateAt(schedule, step) * `learning_rate_factor`. `inputs` and
  // `targets` have shape [n, T], row-major, n in [1, batch_size]; targets[i] is
  // the token after inputs[i]. Returns the mean loss in nats a token before
  // the update.
  //
  // INVALID_ARGUMENT: a shape is wrong or a token is not in [0, V); nothing is
  // changed. INTERNAL: loss or gradient is not finite; parameters and optimizer
  // are unchanged.
  virtual absl::StatusOr<float> Step(absl::Span<const int32_t> inputs,
                                     absl::Span<const int32_t> targets,
                                     int64_t step,
                                     double learning_rate_factor = 1.0) = 0;

  // Global norm of the last Step's gradient, before clipping.
  virtual double gradient_norm() const = 0;

  // Of a mixture of experts: router_loss_weight times the loss that balances
  // them, in the last Step; its gradient is part of the step's, its value not
  // part of the loss. Else 0.
  virtual double router_loss() const = 0;

  // Mean loss in nats a token of `inputs` and `targets`, shape [n, T] for any
  // n >= 1; it is run in batches of batch_size and averaged in f64. Changes
  // nothing but scratch.
  //
  // INVALID_ARGUMENT: as Step.
  virtual absl::StatusOr<double> EvaluateLoss(
      absl::Span<const int32_t> inputs, absl::Span<const int32_t> targets) = 0;

  // Logits [V] of the token that follows `tokens`, which holds 1 to T tokens.
  // The whole prefix is computed again at each call (there is no key/value
  // cache). The span is valid until the next call.
  //
  // INVALID_ARGUMENT: as Step.
  virtual absl::StatusOr<absl::Span<const float>> NextTokenLogits(
      absl::Span<const int32_t> tokens) = 0;
};

}  // namespace atl::engine
