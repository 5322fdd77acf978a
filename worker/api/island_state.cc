#include "worker/api/island_state.h"

#include <algorithm>
#include <utility>

#include "base/layout/fragment_schedule.h"
#include "base/layout/init_generator.h"
#include "base/status/status_macros.h"
#include "worker/api/model_spec.h"
#include "worker/engine/optimizer/learning_rate_schedule.h"

namespace atl::worker {

IslandState::IslandState(RunLayout layout, const v1::RunSpec& spec)
    : layout_(std::move(layout)), spec_(spec) {}

absl::StatusOr<std::unique_ptr<IslandState>> IslandState::Create(
    const v1::RunSpec& spec, int thread_count) {
  ASSIGN_OR_RETURN(RunLayout layout, RunLayout::Create(spec.layout()));
  ASSIGN_OR_RETURN(const engine::TrainerOptions options,
                   MakeTrainerOptions(spec, thread_count));
  auto state =
      std::unique_ptr<IslandState>(new IslandState(std::move(layout), spec));
  ASSIGN_OR_RETURN(state->trainer_, engine::Trainer::Create(options));
  int64_t buffer_count = 0;
  for (int32_t f = 0; f < state->layout_.fragment_count(); ++f) {
    buffer_count =
        std::max(buffer_count, state->layout_.fragment_element_count(f));
  }
  state->anchors_.assign(state->layout_.element_count(), 0.0f);
  state->buffer_.assign(buffer_count, 0.0f);
  if (IsStreaming(spec.schedule())) {
    state->kept_local_.assign(state->layout_.element_count(), 0.0f);
  }
  if (spec.schedule().eager()) {
    state->eager_.emplace(spec.outer());
    state->momentum_.assign(state->layout_.element_count(), 0.0f);
    state->foreseen_.assign(state->layout_.element_count(), 0.0f);
  }
  return state;
}

absl::Span<float> IslandState::FragmentBuffer(int32_t fragment) {
  return absl::MakeSpan(buffer_).subspan(
      0, layout_.fragment_element_count(fragment));
}

absl::Span<float> IslandState::AnchorBuffer(int32_t fragment) {
  for (const int32_t index : layout_.fragment_tensors(fragment)) {
    const TensorPlace& tensor = layout_.tensors()[index];
    std::copy_n(anchors_.begin() + tensor.model_offset, tensor.element_count,
                buffer_.begin() + tensor.fragment_offset);
  }
  return FragmentBuffer(fragment);
}

void IslandState::Scatter(int32_t fragment, absl::Span<float> model) const {
  for (const int32_t index : layout_.fragment_tensors(fragment)) {
    const TensorPlace& tensor = layout_.tensors()[index];
    std::copy_n(buffer_.begin() + tensor.fragment_offset, tensor.element_count,
                model.begin() + tensor.model_offset);
  }
}

void IslandState::SetAnchor(int32_t fragment) {
  Scatter(fragment, absl::MakeSpan(anchors_));
}

Digest128 IslandState::BufferDigest(int32_t fragment) const {
  return RangeDigest(
      layout_, fragment, {0, layout_.fragment_block_count(fragment)},
      absl::MakeConstSpan(buffer_).subspan(
          0, layout_.fragment_element_count(fragment)));
}

void IslandState::InitAnchors(const v1::RunSpec& spec) {
  for (const TensorPlace& tensor : layout_.tensors()) {
    GenerateInit(spec.layout().tensors(tensor.tensor).init(),
                         spec.init().seed(), tensor.tensor, 0,
                         absl::MakeSpan(anchors_).subspan(
                             tensor.model_offset, tensor.element_count));
  }
}

void IslandState::BeginRound() {
  std::copy(anchors_.begin(), anchors_.end(), trainer_->parameters().begin());
  if (spec_.inner().reset_each_round()) trainer_->ResetOptimizer();
}

absl::StatusOr<StepResult> IslandState::Train(const Batch& batch,
                                              int64_t step) {
  double factor = 1.0;
  if (restart_step_count_ >= 0) {
    const int64_t warmup = std::max<int64_t>(
        1, std::min(spec_.inner().warmup_step_count(),
                    spec_.schedule().inner_step_count()));
    factor = engine::RestartWarmupFactor(restart_step_count_, warmup);
  }
  StepResult result;
  ASSIGN_OR_RETURN(result.loss, trainer_->Step(batch.inputs, batch.targets,
                                               step, factor));
  if (restart_step_count_ >= 0) ++restart_step_count_;
  result.gradient_norm = trainer_->gradient_norm();
  result.token_count = static_cast<int64_t>(batch.inputs.size());
  return result;
}

void IslandState::OuterGradient(int32_t fragment,
                                absl::Span<float> out) const {
  const absl::Span<const float> local =
      const_cast<const engine::Trainer&>(*trainer_).parameters();
  for (const int32_t index : layout_.fragment_tensors(fragment)) {
    const TensorPlace& tensor = layout_.tensors()[index];
    const float* anchor = anchors_.data() + tensor.model_offset;
    const float* theta = local.data() + tensor.model_offset;
    float* to = out.data() + tensor.fragment_offset;
    for (int64_t i = 0; i < tensor.element_count; ++i) {
      to[i] = anchor[i] - theta[i];
    }
  }
}

absl::Span<const float> IslandState::local() const {
  return const_cast<const engine::Trainer&>(*trainer_).parameters();
}

void IslandState::ApplyAnchor(int32_t fragment, bool adopt) {
  const absl::Span<float> local = trainer_->parameters();
  const auto blend = static_cast<float>(spec_.schedule().blend());
  for (const int32_t index : layout_.fragment_tensors(fragment)) {
    const TensorPlace& tensor = layout_.tensors()[index];
    const auto part = [&](auto& values) {
      return absl::MakeSpan(values).subspan(tensor.model_offset,
                                            tensor.element_count);
    };
    const absl::Span<float> x =
        local.subspan(tensor.model_offset, tensor.element_count);
    const absl::Span<const float> v = part(anchors_);
    if (eager_.has_value() && !adopt) {
      eager_->Correct(v, part(foreseen_), x, part(momentum_));
      continue;
    }
    BlendIn(x, v, adopt ? 0.0f : blend);
    if (!eager_.has_value()) continue;
    // What was foreseen has not come about: begin anew.
    std::fill_n(part(momentum_).begin(), tensor.element_count, 0.0f);
  }
}

void IslandState::Foresee(int32_t fragment, double weight) {
  if (!eager_.has_value()) return;
  const absl::Span<float> local = trainer_->parameters();
  for (const int32_t index : layout_.fragment_tensors(fragment)) {
    const TensorPlace& tensor = layout_.tensors()[index];
    const auto part = [&](auto& values) {
      return absl::MakeSpan(values).subspan(tensor.model_offset,
                                            tensor.element_count);
    };
    eager_->Foresee(part(anchors_), static_cast<float>(weight),
                    local.subspan(tensor.model_offset, tensor.element_count),
                    part(foreseen_), part(momentum_));
  }
}

void IslandState::KeepLocal() {
  if (kept_local_.empty()) return;
  const absl::Span<const float> values = local();
  std::copy(values.begin(), values.end(), kept_local_.begin());
}

void IslandState::TakeLocalBack() {
  std::copy(kept_local_.begin(), kept_local_.end(),
            trainer_->parameters().begin());
}

void IslandState::SetLocalToAnchors() {
  std::copy(anchors_.begin(), anchors_.end(), trainer_->parameters().begin());
}

void IslandState::SetLocal(int32_t fragment) {
  Scatter(fragment, trainer_->parameters());
}

absl::StatusOr<double> IslandState::EvaluateLocal(const Batch& batch) {
  return trainer_->EvaluateLoss(batch.inputs, batch.targets);
}

void IslandState::StepAnchorsToLocal() {
  const absl::Span<const float> local =
      const_cast<const engine::Trainer&>(*trainer_).parameters();
  for (size_t i = 0; i < anchors_.size(); ++i) {
    const float outer_gradient = anchors_[i] - local[i];
    anchors_[i] = anchors_[i] - outer_gradient;
  }
}

void IslandState::ResetOptimizer(bool warm_up) {
  trainer_->ResetOptimizer();
  restart_step_count_ = warm_up ? 0 : -1;
}

}  // namespace atl::worker
