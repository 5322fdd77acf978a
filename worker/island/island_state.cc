#include "worker/island/island_state.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/init_generator.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "worker/engine/optimizer/learning_rate_schedule.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {
namespace {

// The elements of `piece` in `values`, shape [E].
template <typename Values>
auto Part(Values& values, const HeldPiece& piece) {
  return absl::MakeSpan(values).subspan(piece.held_offset, piece.element_count);
}

}  // namespace

IslandState::IslandState(RunLayout layout, const v1::RunSpec& spec)
    : layout_(std::move(layout)), spec_(spec) {}

absl::StatusOr<std::unique_ptr<IslandState>> IslandState::Create(
    const v1::RunSpec& spec, int thread_count,
    const TrainerMaker& make_trainer) {
  ASSIGN_OR_RETURN(RunLayout layout, RunLayout::Create(spec.layout()));
  ASSIGN_OR_RETURN(const engine::TrainerOptions options,
                   MakeTrainerOptions(spec, thread_count));
  auto state =
      std::unique_ptr<IslandState>(new IslandState(std::move(layout), spec));
  ASSIGN_OR_RETURN(state->trainer_, make_trainer(options));
  std::vector<IndexRange> spans;
  for (const engine::ParameterSpan& span : state->trainer_->held()) {
    spans.push_back({span.begin, span.end});
  }
  ASSIGN_OR_RETURN(state->held_, HeldLayout::Create(state->layout_, spans));
  const HeldLayout& held = *state->held_;
  state->anchors_.assign(held.element_count(), 0.0f);
  state->buffer_.assign(held.fragment_element_count_max(), 0.0f);
  if (IsStreaming(spec.schedule())) {
    state->kept_local_.assign(held.element_count(), 0.0f);
  }
  if (spec.schedule().eager()) {
    state->eager_.emplace(spec.outer());
    state->momentum_.assign(held.element_count(), 0.0f);
    state->foreseen_.assign(held.element_count(), 0.0f);
  }
  return state;
}

absl::Span<float> IslandState::FragmentBuffer(int32_t fragment) {
  return absl::MakeSpan(buffer_).subspan(
      0, held_->fragment_element_count(fragment));
}

absl::Span<float> IslandState::AnchorBuffer(int32_t fragment) {
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    std::copy_n(anchors_.begin() + piece.held_offset, piece.element_count,
                buffer_.begin() + piece.fragment_offset);
  }
  return FragmentBuffer(fragment);
}

void IslandState::Spread(int32_t fragment, absl::Span<float> values) const {
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    std::copy_n(buffer_.begin() + piece.fragment_offset, piece.element_count,
                values.begin() + piece.held_offset);
  }
}

void IslandState::SetAnchor(int32_t fragment) {
  Spread(fragment, absl::MakeSpan(anchors_));
}

void IslandState::InitAnchors(const v1::RunSpec& spec) {
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    for (const HeldPiece& piece : held_->pieces(f)) {
      GenerateInit(spec.layout().tensors(piece.tensor).init(),
                   spec.init().seed(), piece.tensor, piece.tensor_offset,
                   Part(anchors_, piece));
    }
  }
}

void IslandState::set_before_write(std::function<void()> before_write) {
  before_write_ = std::move(before_write);
  trainer_calls_it_ = trainer_->set_before_write(before_write_);
}

absl::Status IslandState::Gather() {
  before_write_();
  if (!ranks_ahead_) return absl::OkStatus();
  RETURN_IF_ERROR(trainer_->Gather());
  ranks_ahead_ = false;
  return absl::OkStatus();
}

absl::Status IslandState::Scatter() {
  if (!ranks_behind_) return absl::OkStatus();
  RETURN_IF_ERROR(trainer_->Scatter());
  ranks_behind_ = false;
  return absl::OkStatus();
}

absl::Status IslandState::BeginRound() {
  RETURN_IF_ERROR(Gather());
  SetLocalToAnchors();
  if (spec_.inner().reset_each_round()) trainer_->ResetOptimizer();
  return absl::OkStatus();
}

absl::StatusOr<StepResult> IslandState::Train(const Batch& batch,
                                              int64_t step) {
  double factor = 1.0;
  if (restart_step_count_ >= 0) {
    const int64_t warmup =
        std::max<int64_t>(1, std::min(spec_.inner().warmup_step_count(),
                                      spec_.schedule().inner_step_count()));
    factor = engine::RestartWarmupFactor(restart_step_count_, warmup);
  }
  if (!trainer_calls_it_) before_write_();
  RETURN_IF_ERROR(Scatter());
  StepResult result;
  // Also if it fails: Step may have released the arrays here before.
  ranks_ahead_ = true;
  ASSIGN_OR_RETURN(result.loss,
                   trainer_->Step(batch.inputs, batch.targets, step, factor));
  if (restart_step_count_ >= 0) ++restart_step_count_;
  result.gradient_norm = trainer_->gradient_norm();
  result.token_count = static_cast<int64_t>(batch.inputs.size());
  return result;
}

void IslandState::OuterGradient(int32_t fragment, absl::Span<float> out) const {
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    const float* anchor = anchors_.data() + piece.held_offset;
    const float* theta = local().data() + piece.held_offset;
    float* to = out.data() + piece.fragment_offset;
    for (int64_t i = 0; i < piece.element_count; ++i) {
      to[i] = anchor[i] - theta[i];
    }
  }
}

absl::Span<const float> IslandState::local() const {
  CHECK(!ranks_ahead_) << "local() without Gather()";
  return const_cast<const engine::Trainer&>(*trainer_).parameters();
}

absl::Span<float> IslandState::mutable_local() {
  CHECK(!ranks_ahead_) << "mutable_local() without Gather()";
  before_write_();
  ranks_behind_ = true;
  return trainer_->parameters();
}

void IslandState::SetOptimizerStepCount(int64_t step_count) {
  ranks_behind_ = true;
  trainer_->set_optimizer_step_count(step_count);
}

absl::Status IslandState::ApplyAnchor(int32_t fragment, bool adopt) {
  RETURN_IF_ERROR(Gather());
  const absl::Span<float> local = mutable_local();
  const auto blend = static_cast<float>(spec_.schedule().blend());
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    const absl::Span<float> x = Part(local, piece);
    const absl::Span<const float> v = Part(anchors_, piece);
    if (eager_.has_value() && !adopt) {
      eager_->Correct(v, Part(foreseen_, piece), x, Part(momentum_, piece));
      continue;
    }
    BlendIn(x, v, adopt ? 0.0f : blend);
    if (!eager_.has_value()) continue;
    // The foreseen values no longer apply: m starts again at 0.
    std::fill_n(Part(momentum_, piece).begin(), piece.element_count, 0.0f);
  }
  return absl::OkStatus();
}

void IslandState::Foresee(int32_t fragment, double weight) {
  if (!eager_.has_value()) return;
  const absl::Span<float> local = mutable_local();
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    eager_->Foresee(Part(anchors_, piece), static_cast<float>(weight),
                    Part(local, piece), Part(foreseen_, piece),
                    Part(momentum_, piece));
  }
}

absl::Status IslandState::KeepLocal() {
  RETURN_IF_ERROR(Gather());
  if (!kept_local_.empty()) absl::c_copy(local(), kept_local_.begin());
  return absl::OkStatus();
}

void IslandState::TakeLocalBack() {
  if (kept_local_.empty()) return;
  absl::c_copy(kept_local_, mutable_local().begin());
}

void IslandState::SetLocalToAnchors() {
  absl::c_copy(anchors_, mutable_local().begin());
}

void IslandState::SetLocal(int32_t fragment) {
  Spread(fragment, mutable_local());
}

absl::StatusOr<double> IslandState::EvaluateLocal(const Batch& batch) {
  RETURN_IF_ERROR(Scatter());
  return trainer_->EvaluateLoss(batch.inputs, batch.targets);
}

absl::Status IslandState::StepAnchorsToLocal() {
  RETURN_IF_ERROR(Gather());
  const absl::Span<const float> theta = local();
  for (size_t i = 0; i < anchors_.size(); ++i) {
    const float outer_gradient = anchors_[i] - theta[i];
    anchors_[i] = anchors_[i] - outer_gradient;
  }
  return absl::OkStatus();
}

absl::Status IslandState::ResetOptimizer(bool warm_up) {
  RETURN_IF_ERROR(Gather());
  ranks_behind_ = true;
  trainer_->ResetOptimizer();
  restart_step_count_ = warm_up ? 0 : -1;
  return absl::OkStatus();
}

}  // namespace atl::worker
