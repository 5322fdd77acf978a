// An island's anchors and trainer. Thread-compatible; no I/O.
//
//   E    elements of the model that this process holds (IslandTrainer::held)
//   F_f  elements of fragment f that this process holds
//
// Anchors and local parameters are f32, shape [E], in the held order. Transfers
// are f32, shape [F_f], in the fragment's held order
// (base/layout/held_layout.h).
//
// All processes of the island must make a call marked "Collective", in the same
// order. Its error is the error of all.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/codec/block_run.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "worker/core/local_update.h"
#include "worker/island/island_trainer.h"

namespace atl::worker {

class IslandState {
 public:
  // INVALID_ARGUMENT: the layout is invalid, or the trainer does not fit it.
  static absl::StatusOr<std::unique_ptr<IslandState>> Create(
      const v1::RunSpec& spec, std::unique_ptr<IslandTrainer> trainer);

  // Outer gradients and answers are computed in a `loop`, which changes no bit.
  void set_loop(codec::Loop loop) { loop_ = std::move(loop); }

  // Runs `before_write` on the caller's thread before local parameters, the
  // arrays of Save(), eager_momentum() or eager_foreseen() may change. Train()
  // runs it as late as its trainer can. May also run when nothing changes.
  void set_before_write(std::function<void()> before_write);

  IslandTrainer& trainer() { return *trainer_; }

  const RunLayout& layout() const { return layout_; }
  const HeldLayout& held() const { return *held_; }

  // A buffer, shape [F_f], to fill for SetAnchor() or SetLocal(). Valid until
  // the next call: all fragments share its memory.
  absl::Span<float> FragmentBuffer(int32_t fragment);
  // FragmentBuffer(), filled with the anchor of `fragment`.
  absl::Span<float> AnchorBuffer(int32_t fragment);
  // Sets `out` to the anchor of `fragment`, shape [F_f].
  void ReadAnchor(int32_t fragment, std::vector<float>& out) const;
  // Sets the anchor of `fragment` to FragmentBuffer().
  void SetAnchor(int32_t fragment);
  // Sets every anchor to version 0, as servers make it without an import.
  void InitAnchors(const v1::RunSpec& spec);

  // Collective. Local parameters = anchors; a fresh optimizer if configured.
  absl::Status BeginRound();

  // Collective. At least one inner step; `request` is the same in all
  // processes. The learning rate's factor is this island's own, unless the
  // request has one. Errors as IslandTrainer::Train.
  absl::StatusOr<StepResult> Train(StepRequest request);

  // Collective. Required before OuterGradient() and Foresee() of `fragments`,
  // and, with all fragments, before local() and SetLocal(values).
  absl::Status Acquire(absl::Span<const int32_t> fragments,
                       LocalAccess access = LocalAccess::kRead);
  // Acquires all fragments.
  absl::Status AcquireAll(LocalAccess access);

  // Sets `out`, shape [F_f], to the outer gradient, anchor - local.
  void OuterGradient(int32_t fragment, absl::Span<float> out) const;

  // Collective; streaming runs. Applies the anchor of `fragment` to the local
  // parameters: BlendIn(), or in an eager run EagerStep::Correct(). With
  // `adopt` they become the anchor, and m becomes 0. Buffers of an eager run
  // become the anchor, because a correction may leave the range of the islands'
  // values.
  absl::Status ApplyAnchor(int32_t fragment, bool adopt);
  // In an eager run, after OuterGradient(): EagerStep::Foresee() with this
  // island's `weight` in the merge; buffers stay, and are their own P.
  // Elsewhere nothing.
  void Foresee(int32_t fragment, double weight);

  // P and m of `fragment`, shape [F_f], as Foresee() left them; and back, with
  // the local parameters, which are P then. Only in an eager run. Setting them
  // is collective.
  void ReadForeseen(int32_t fragment, std::vector<float>& foreseen,
                    std::vector<float>& momentum) const;
  absl::Status SetForeseen(int32_t fragment, absl::Span<const float> foreseen,
                           absl::Span<const float> momentum);

  // Local parameters, shape [E]; valid until the next call.
  absl::Span<const float> local();
  // Sets all local parameters. Requires: `values` has shape [E].
  void SetLocalFrom(absl::Span<const float> values);
  // m and P of an eager run (core/local_update.h), or empty.
  absl::Span<float> eager_momentum() { return absl::MakeSpan(momentum_); }
  absl::Span<float> eager_foreseen() { return absl::MakeSpan(foreseen_); }

  // Keep the local parameters of a streaming run over an evaluation. In rounds
  // they keep nothing: no round is under way then. Collective.
  absl::Status KeepLocal();
  absl::Status TakeLocalBack();

  // Set local parameters to the anchors, or those of `fragment` to
  // FragmentBuffer(). Only between rounds, or after KeepLocal().
  void SetLocalToAnchors();
  void SetLocal(int32_t fragment);
  // Collective. Anchors = anchors - (anchors - local): the outer step of one
  // island with SGD and lr 1, in f32.
  absl::Status StepAnchorsToLocal();

  // Collective. The trainer's first state. `warm_up`: with a learning-rate
  // warm-up of the next steps.
  absl::Status Reset(bool warm_up);

  // Steps since a reset with a warm-up; -1: none. Part of the local checkpoint.
  int64_t restart_step_count() const { return restart_step_count_; }
  void set_restart_step_count(int64_t count) { restart_step_count_ = count; }

 private:
  IslandState(RunLayout layout, const v1::RunSpec& spec);

  // Copies the elements of `fragment` in `values`, shape [E], to `out`, [F_f].
  void Gather(int32_t fragment, absl::Span<const float> values,
              absl::Span<float> out) const;
  // Copies FragmentBuffer() to its places in `values`, shape [E].
  void Spread(int32_t fragment, absl::Span<float> values) const;
  // Calls `visit` for consecutive parts of the held elements of `fragment`, in
  // loop_.
  void ForEachPart(int32_t fragment,
                   absl::FunctionRef<void(const HeldPiece&)> visit) const;
  // True for parameters of an eager run, false for buffers.
  bool Foresees(const HeldPiece& piece) const;
  // Call it before local values of `fragment` change. In all processes, also in
  // those that hold none of it: their ranks exchange values together.
  void BeginWrite(int32_t fragment);

  const RunLayout layout_;
  const v1::RunSpec spec_;
  std::vector<int32_t> all_fragments_;
  std::function<void()> before_write_ = [] {};
  codec::Loop loop_ = codec::LoopInOrder;
  std::unique_ptr<IslandTrainer> trainer_;
  std::optional<HeldLayout> held_;
  std::vector<float> anchors_;
  std::vector<float> buffer_;
  std::vector<float> kept_local_;  // During an evaluation; streaming runs.
  std::vector<float> in_order_;    // local(), if the trainer has it elsewhere.
  std::optional<EagerStep> eager_;
  std::vector<float> momentum_, foreseen_;
  int64_t restart_step_count_ = -1;
};

}  // namespace atl::worker
