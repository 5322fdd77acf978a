// What an island computes with: anchors, the trainer, contributions.
//
// It is the seam between the loop and a trainer. Thread-compatible; no I/O.
//
//   E    elements of the model     F_f  elements of fragment f
//
// both of what this process holds (Trainer::held); that is everything where an
// island is one process. Anchors and local parameters are in the held order,
// shape [E], f32; what travels is in a fragment's held order, shape [F_f]
// (base/layout/held_layout.h).
//
// Ranks have parameters of their own (Trainer::Scatter, Gather). Here it is
// known what they lack, and what they have that is not here, so each call that
// says "with all" is one that all processes of the island have to make, in the
// same order; its error is one of all (Trainer says which).

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

// One inner step, for reports.
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

  // `before_write` is called before anything changes what local() and
  // optimizer() show, eager_momentum() and eager_foreseen() too: in a Train as
  // late as its Trainer can. From the caller's thread. It may be called when
  // nothing will.
  void set_before_write(std::function<void()> before_write);

  const RunLayout& layout() const { return layout_; }
  const HeldLayout& held() const { return *held_; }
  absl::Span<const float> anchors() const { return anchors_; }

  // Room for the elements of `fragment`, shape [F_f], to be filled before
  // SetAnchor(). Valid until the next call.
  absl::Span<float> FragmentBuffer(int32_t fragment);
  // The other way round: fills FragmentBuffer() with the anchor and returns it.
  absl::Span<float> AnchorBuffer(int32_t fragment);
  // The anchor of `fragment` becomes what FragmentBuffer() was filled with.
  void SetAnchor(int32_t fragment);
  // Every anchor becomes version 0 as servers make it without an import.
  void InitAnchors(const v1::RunSpec& spec);

  // With all: local parameters = anchors; a fresh optimizer if the run wants
  // one a round.
  absl::Status BeginRound();

  // With all: one inner step on `batch`, the same for all, at `step` of the
  // run's clock.
  //
  // As Trainer::Step.
  absl::StatusOr<StepResult> Train(const Batch& batch, int64_t step);

  // With all: local parameters and optimizer are as the last step left them.
  // Before OuterGradient(), local(), mutable_local() and optimizer(): after a
  // step there may be nothing here.
  absl::Status Gather();

  // Sets `out`, shape [F_f], to the outer gradient of `fragment`, anchor -
  // local, in the fragment's flat order.
  void OuterGradient(int32_t fragment, absl::Span<float> out) const;

  // With all. Of a streaming run: the anchor of `fragment` becomes part of the
  // local parameters, blended or as a correction of what was foreseen, as the
  // run says; with `adopt` they are it.
  absl::Status ApplyAnchor(int32_t fragment, bool adopt);
  // Of an eager run, at the push of `fragment`, after OuterGradient(): local
  // parameters become what this island, with `weight` of the merge, foresees.
  // Elsewhere nothing.
  void Foresee(int32_t fragment, double weight);

  // Local parameters; and of an eager run m and P (local_update.h), else
  // empty. Each of shape [E], in the held order.
  absl::Span<const float> local() const;
  absl::Span<float> mutable_local();
  absl::Span<float> eager_momentum() { return absl::MakeSpan(momentum_); }
  absl::Span<float> eager_foreseen() { return absl::MakeSpan(foreseen_); }
  // The inner optimizer's state. To write it: moments here, then the count.
  engine::OptimizerState optimizer() { return trainer_->optimizer_state(); }
  void SetOptimizerStepCount(int64_t step_count);

  // With all. Around an evaluation, which overwrites local parameters: a
  // streaming run goes on from them. In a run in rounds nothing, for no round
  // is under way.
  absl::Status KeepLocal();
  void TakeLocalBack();

  // Local parameters become the anchors, or, of `fragment`, what
  // FragmentBuffer() was filled with. Only between rounds, or kept.
  void SetLocalToAnchors();
  void SetLocal(int32_t fragment);
  // With all: mean loss of the local parameters on `batch`, nats a token.
  absl::StatusOr<double> EvaluateLocal(const Batch& batch);

  // With all. Anchors = anchors - (anchors - local): the outer step of one
  // island with SGD and lr 1, in f32.
  absl::Status StepAnchorsToLocal();

  // With all: a fresh optimizer; with a warm-up of the next steps if `warm_up`.
  absl::Status ResetOptimizer(bool warm_up);

  // Steps taken since a reset with a warm-up; -1 if there was none. Part of the
  // SAVE.
  int64_t restart_step_count() const { return restart_step_count_; }
  void set_restart_step_count(int64_t count) { restart_step_count_ = count; }

 private:
  IslandState(RunLayout layout, const v1::RunSpec& spec);

  // Copies FragmentBuffer() to where `fragment` lies in `values`, shape [E].
  void Spread(int32_t fragment, absl::Span<float> values) const;
  // With all, if they lack something: the ranks get what was written here.
  absl::Status Scatter();

  const RunLayout layout_;
  const v1::RunSpec spec_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::function<void()> before_write_ = [] {};
  bool trainer_calls_it_ = false;  // In its Step.
  std::optional<HeldLayout> held_;
  bool ranks_ahead_ = false;   // They have stepped since Gather().
  bool ranks_behind_ = false;  // Something was written since Scatter().
  std::vector<float> anchors_;
  std::vector<float> buffer_;
  std::vector<float> kept_local_;  // During an evaluation; streaming runs.
  std::optional<EagerStep> eager_;
  std::vector<float> momentum_, foreseen_;
  int64_t restart_step_count_ = -1;
};

}  // namespace atl::worker
