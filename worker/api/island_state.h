// What an island computes with: anchors, the trainer, contributions.
//
// It is the seam between the loop and a trainer. Thread-compatible; no I/O.
//
//   E    elements of the model     F_f  elements of fragment f
//
// Anchors and local parameters are flat, in the model order, shape [E], f32;
// what travels is in a fragment's flat order, shape [F_f].

#ifndef WORKER_API_ISLAND_STATE_H_
#define WORKER_API_ISLAND_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "worker/core/local_update.h"
#include "worker/data/batch_reader.h"
#include "worker/engine/trainer.h"

namespace atl::worker {

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
      const v1::RunSpec& spec, int thread_count);

  const RunLayout& layout() const { return layout_; }
  engine::Trainer& trainer() { return *trainer_; }
  absl::Span<const float> anchors() const { return anchors_; }

  // Room for the elements of `fragment`, shape [F_f], to be filled before
  // SetAnchor(). Valid until the next call.
  absl::Span<float> FragmentBuffer(int32_t fragment);
  // The other way round: fills FragmentBuffer() with the anchor and returns it.
  absl::Span<float> AnchorBuffer(int32_t fragment);
  // The anchor of `fragment` becomes what FragmentBuffer() was filled with.
  void SetAnchor(int32_t fragment);
  // Digest of what FragmentBuffer() holds (FragmentVersion.digest).
  Digest128 BufferDigest(int32_t fragment) const;

  // Every anchor becomes version 0 as servers make it without an import.
  void InitAnchors(const v1::RunSpec& spec);

  // Local parameters = anchors; a fresh optimizer if the run wants one a round.
  void BeginRound();

  // One inner step on `batch`, at `step` of the run's clock.
  //
  // As Trainer::Step.
  absl::StatusOr<StepResult> Train(const Batch& batch, int64_t step);

  // Sets `out`, shape [F_f], to the outer gradient of `fragment`, anchor -
  // local, in the fragment's flat order.
  void OuterGradient(int32_t fragment, absl::Span<float> out) const;

  // Of a streaming run: the anchor of `fragment` becomes part of the local
  // parameters, blended or as a correction of what was foreseen, as the run
  // says; with `adopt` they are it.
  void ApplyAnchor(int32_t fragment, bool adopt);
  // Of an eager run, at the push of `fragment`, after OuterGradient(): local
  // parameters become what this island, with `weight` of the merge, foresees.
  // Elsewhere nothing.
  void Foresee(int32_t fragment, double weight);

  // Local parameters; and of an eager run m and P (local_update.h), else
  // empty. Each of shape [E], in the model order.
  absl::Span<const float> local() const;
  absl::Span<float> mutable_local() { return trainer_->parameters(); }
  absl::Span<float> eager_momentum() { return absl::MakeSpan(momentum_); }
  absl::Span<float> eager_foreseen() { return absl::MakeSpan(foreseen_); }

  // Around an evaluation, which overwrites local parameters: a streaming run
  // goes on from them. In a run in rounds nothing, for no round is under way.
  void KeepLocal();
  void TakeLocalBack();

  // Local parameters become the anchors, or, of `fragment`, what
  // FragmentBuffer() was filled with. Only between rounds.
  void SetLocalToAnchors();
  void SetLocal(int32_t fragment);
  // Mean loss of the local parameters on `batch`, nats a token.
  absl::StatusOr<double> EvaluateLocal(const Batch& batch);

  // Anchors = anchors - (anchors - local): the outer step of one island with
  // SGD and lr 1, in f32.
  void StepAnchorsToLocal();

  // A fresh optimizer; with a warm-up of the next steps if `warm_up`.
  void ResetOptimizer(bool warm_up);

  // Steps taken since a reset with a warm-up; -1 if there was none. Part of the
  // SAVE.
  int64_t restart_step_count() const { return restart_step_count_; }
  void set_restart_step_count(int64_t count) { restart_step_count_ = count; }

 private:
  IslandState(RunLayout layout, const v1::RunSpec& spec);

  // Copies FragmentBuffer() to where `fragment` lies in `model`.
  void Scatter(int32_t fragment, absl::Span<float> model) const;

  const RunLayout layout_;
  const v1::RunSpec spec_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::vector<float> anchors_;
  std::vector<float> buffer_;
  std::vector<float> kept_local_;  // During an evaluation; streaming runs.
  std::optional<EagerStep> eager_;
  std::vector<float> momentum_, foreseen_;
  int64_t restart_step_count_ = -1;
};

}  // namespace atl::worker

#endif  // WORKER_API_ISLAND_STATE_H_
