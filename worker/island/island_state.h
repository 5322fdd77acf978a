// An island's anchors and trainer. Thread-compatible; no I/O.
//
//   E    elements of the model that this process holds (Trainer::held)
//   F_f  elements of fragment f that this process holds
//
// Anchors and local parameters are f32, shape [E], in the held order. Transfers
// are f32, shape [F_f], in the fragment's held order
// (base/layout/held_layout.h).
//
// Ranks keep parameters of their own; this class knows which copy is newer
// (Trainer::Scatter, Gather). All processes of the island must make a call
// marked "Collective", in the same order. Its error is the error of all.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "worker/core/local_update.h"
#include "worker/data/batch_reader.h"
#include "worker/engine/trainer.h"

namespace atl::worker {

using TrainerMaker =
    std::function<absl::StatusOr<std::unique_ptr<engine::Trainer>>(
        const engine::TrainerOptions&)>;

struct StepResult {
  float loss = 0;            // Nats a token, before the update.
  double gradient_norm = 0;  // Before clipping.
  int64_t token_count = 0;
};

class IslandState {
 public:
  // INVALID_ARGUMENT: the spec cannot be trained here; the message says why.
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<IslandState>> Create(
      const v1::RunSpec& spec, int thread_count,
      const TrainerMaker& make_trainer = engine::Trainer::Create);

  // Runs `before_write` on the caller's thread before local(), optimizer(),
  // eager_momentum() or eager_foreseen() may change. Train() runs it as late as
  // its Trainer can. May also run when nothing changes.
  void set_before_write(std::function<void()> before_write);

  const RunLayout& layout() const { return layout_; }
  const HeldLayout& held() const { return *held_; }

  // A buffer, shape [F_f], to fill for SetAnchor() or SetLocal(). Valid until
  // the next call: all fragments share its memory.
  absl::Span<float> FragmentBuffer(int32_t fragment);
  // FragmentBuffer(), filled with the anchor of `fragment`.
  absl::Span<float> AnchorBuffer(int32_t fragment);
  // Sets the anchor of `fragment` to FragmentBuffer().
  void SetAnchor(int32_t fragment);
  // Sets every anchor to version 0, as servers make it without an import.
  void InitAnchors(const v1::RunSpec& spec);

  // Collective. Local parameters = anchors; a fresh optimizer if configured.
  absl::Status BeginRound();

  // Collective. One inner step on `batch`, the same in all processes, at `step`
  // of the run's clock. Errors as Trainer::Step.
  absl::StatusOr<StepResult> Train(const Batch& batch, int64_t step);

  // Collective. Gets parameters and optimizer from the ranks. Required before
  // OuterGradient(), local(), mutable_local() and optimizer(): after a step
  // their spans may be empty.
  absl::Status Gather();

  // Sets `out`, shape [F_f], to the outer gradient, anchor - local.
  void OuterGradient(int32_t fragment, absl::Span<float> out) const;

  // Collective; streaming runs. Applies the anchor of `fragment` to the local
  // parameters: BlendIn(), or in an eager run EagerStep::Correct(). With
  // `adopt` they become the anchor, and m becomes 0.
  absl::Status ApplyAnchor(int32_t fragment, bool adopt);
  // In an eager run, after OuterGradient(): EagerStep::Foresee() with this
  // island's `weight` in the merge. Elsewhere nothing.
  void Foresee(int32_t fragment, double weight);

  // Local parameters; m and P of an eager run (core/local_update.h), or empty.
  absl::Span<const float> local() const;
  absl::Span<float> mutable_local();
  absl::Span<float> eager_momentum() { return absl::MakeSpan(momentum_); }
  absl::Span<float> eager_foreseen() { return absl::MakeSpan(foreseen_); }
  // To restore the inner optimizer, write the moments here, then the count.
  engine::OptimizerState optimizer() { return trainer_->optimizer_state(); }
  void SetOptimizerStepCount(int64_t step_count);

  // Keep the local parameters of a streaming run over an evaluation. In rounds
  // they do nothing: no round is under way then. KeepLocal() is collective.
  absl::Status KeepLocal();
  void TakeLocalBack();

  // Set local parameters to the anchors, or those of `fragment` to
  // FragmentBuffer(). Only between rounds, or after KeepLocal().
  void SetLocalToAnchors();
  void SetLocal(int32_t fragment);
  // Collective. Mean loss of the local parameters on `batch`, nats a token.
  absl::StatusOr<double> EvaluateLocal(const Batch& batch);

  // Collective. Anchors = anchors - (anchors - local): the outer step of one
  // island with SGD and lr 1, in f32.
  absl::Status StepAnchorsToLocal();

  // Collective. `warm_up`: with a learning-rate warm-up of the next steps.
  absl::Status ResetOptimizer(bool warm_up);

  // Steps since a reset with a warm-up; -1: none. Part of the local checkpoint.
  int64_t restart_step_count() const { return restart_step_count_; }
  void set_restart_step_count(int64_t count) { restart_step_count_ = count; }

 private:
  IslandState(RunLayout layout, const v1::RunSpec& spec);

  // Copies FragmentBuffer() to its places in `values`, shape [E].
  void Spread(int32_t fragment, absl::Span<float> values) const;
  // Collective. Updates the ranks if they are behind.
  absl::Status Scatter();

  const RunLayout layout_;
  const v1::RunSpec spec_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::function<void()> before_write_ = [] {};
  bool trainer_calls_it_ = false;  // Trainer::Step calls before_write_.
  std::optional<HeldLayout> held_;
  bool ranks_ahead_ = false;   // A step ran since Gather().
  bool ranks_behind_ = false;  // This copy was written since Scatter().
  std::vector<float> anchors_;
  std::vector<float> buffer_;
  std::vector<float> kept_local_;  // During an evaluation; streaming runs.
  std::optional<EagerStep> eager_;
  std::vector<float> momentum_, foreseen_;
  int64_t restart_step_count_ = -1;
};

}  // namespace atl::worker
