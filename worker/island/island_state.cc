#include "worker/island/island_state.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/init_generator.h"
#include "base/status/status_macros.h"
#include "worker/engine/optimizer/learning_rate_schedule.h"

namespace atl::worker {
namespace {

// Elements of a part: enough work for a thread.
constexpr int64_t kPartElements = 1 << 18;

// The elements of `piece` in `values`, shape [E].
template <typename Values>
auto Part(Values& values, const HeldPiece& piece) {
  return absl::MakeSpan(values).subspan(piece.held_offset, piece.element_count);
}

}  // namespace

IslandState::IslandState(RunLayout layout, const v1::RunSpec& spec)
    : layout_(std::move(layout)), spec_(spec) {}

absl::StatusOr<std::unique_ptr<IslandState>> IslandState::Create(
    const v1::RunSpec& spec, std::unique_ptr<IslandTrainer> trainer) {
  ASSIGN_OR_RETURN(RunLayout layout, RunLayout::Create(spec.layout()));
  auto state =
      std::unique_ptr<IslandState>(new IslandState(std::move(layout), spec));
  state->trainer_ = std::move(trainer);
  state->all_fragments_.resize(state->layout_.fragment_count());
  std::iota(state->all_fragments_.begin(), state->all_fragments_.end(), 0);
  ASSIGN_OR_RETURN(state->held_, HeldLayout::Create(state->layout_,
                                                    state->trainer_->held()));
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
  Gather(fragment, anchors_, FragmentBuffer(fragment));
  return FragmentBuffer(fragment);
}

void IslandState::ReadAnchor(int32_t fragment, std::vector<float>& out) const {
  out.resize(held_->fragment_element_count(fragment));
  Gather(fragment, anchors_, absl::MakeSpan(out));
}

void IslandState::Gather(int32_t fragment, absl::Span<const float> values,
                         absl::Span<float> out) const {
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    std::copy_n(values.begin() + piece.held_offset, piece.element_count,
                out.begin() + piece.fragment_offset);
  }
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
  before_write_ = before_write;
  trainer_->set_before_write(std::move(before_write));
}

absl::Status IslandState::Acquire(absl::Span<const int32_t> fragments,
                                  LocalAccess access) {
  return trainer_->Acquire(fragments, access);
}

absl::Status IslandState::AcquireAll(LocalAccess access) {
  return trainer_->Acquire(all_fragments_, access);
}

void IslandState::BeginWrite(int32_t fragment) {
  before_write_();
  trainer_->MarkWritten(fragment);
}

absl::Status IslandState::BeginRound() {
  RETURN_IF_ERROR(AcquireAll(LocalAccess::kReplace));
  SetLocalToAnchors();
  return spec_.inner().reset_each_round() ? trainer_->Reset()
                                          : absl::OkStatus();
}

absl::StatusOr<StepResult> IslandState::Train(StepRequest request) {
  if (restart_step_count_ >= 0) {
    const int64_t warmup =
        std::max<int64_t>(1, std::min(spec_.inner().warmup_step_count(),
                                      spec_.schedule().inner_step_count()));
    request.learning_rate_factor =
        engine::RestartWarmupFactor(restart_step_count_, warmup);
    // Each of these steps has a factor of its own.
    if (restart_step_count_ < warmup) request.step_count_max = 1;
  }
  ASSIGN_OR_RETURN(StepResult result, trainer_->Train(request));
  if (restart_step_count_ >= 0) restart_step_count_ += result.step_count;
  return result;
}

void IslandState::ForEachPart(
    int32_t fragment, absl::FunctionRef<void(const HeldPiece&)> visit) const {
  std::vector<HeldPiece> parts;
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    for (int64_t at = 0; at < piece.element_count; at += kPartElements) {
      HeldPiece& part = parts.emplace_back(piece);
      part.tensor_offset += at;
      part.held_offset += at;
      part.fragment_offset += at;
      part.element_count = std::min(kPartElements, piece.element_count - at);
    }
  }
  loop_(static_cast<int64_t>(parts.size()),
        [&](int64_t i) { visit(parts[i]); });
}

void IslandState::OuterGradient(int32_t fragment, absl::Span<float> out) const {
  ForEachPart(fragment, [&](const HeldPiece& piece) {
    const float* anchor = anchors_.data() + piece.held_offset;
    const float* theta = trainer_->Local(fragment, piece).data();
    float* to = out.data() + piece.fragment_offset;
    for (int64_t i = 0; i < piece.element_count; ++i) {
      to[i] = anchor[i] - theta[i];
    }
  });
}

absl::Span<const float> IslandState::local() {
  const absl::Span<const float> in_order = trainer_->LocalInOrder();
  if (!in_order.empty()) return in_order;
  in_order_.resize(held_->element_count());
  for (const int32_t f : all_fragments_) {
    for (const HeldPiece& piece : held_->pieces(f)) {
      absl::c_copy(trainer_->Local(f, piece), Part(in_order_, piece).begin());
    }
  }
  return in_order_;
}

void IslandState::SetLocalFrom(absl::Span<const float> values) {
  for (const int32_t f : all_fragments_) {
    BeginWrite(f);
    for (const HeldPiece& piece : held_->pieces(f)) {
      absl::c_copy(values.subspan(piece.held_offset, piece.element_count),
                   trainer_->Local(f, piece).begin());
    }
  }
}

absl::Status IslandState::ApplyAnchor(int32_t fragment, bool adopt) {
  const float blend =
      adopt ? 0.0f : static_cast<float>(spec_.schedule().blend());
  const bool replaces = adopt || (!eager_.has_value() && blend == 0);
  RETURN_IF_ERROR(Acquire({fragment}, replaces ? LocalAccess::kReplace
                                               : LocalAccess::kRead));
  BeginWrite(fragment);
  ForEachPart(fragment, [&](const HeldPiece& piece) {
    const absl::Span<float> x = trainer_->Local(fragment, piece);
    const absl::Span<const float> v = Part(anchors_, piece);
    if (Foresees(piece) && !adopt) {
      eager_->Correct(v, Part(foreseen_, piece), x, Part(momentum_, piece));
      return;
    }
    BlendIn(x, v, blend);
    if (!eager_.has_value()) return;
    // The foreseen values no longer apply: m starts again at 0.
    std::fill_n(Part(momentum_, piece).begin(), piece.element_count, 0.0f);
  });
  return absl::OkStatus();
}

bool IslandState::Foresees(const HeldPiece& piece) const {
  return eager_.has_value() && !layout_.tensors()[piece.tensor].is_buffer;
}

void IslandState::Foresee(int32_t fragment, double weight) {
  if (!eager_.has_value()) return;
  BeginWrite(fragment);
  ForEachPart(fragment, [&](const HeldPiece& piece) {
    const absl::Span<float> x = trainer_->Local(fragment, piece);
    if (!Foresees(piece)) {
      absl::c_copy(x, Part(foreseen_, piece).begin());
      return;
    }
    eager_->Foresee(Part(anchors_, piece), static_cast<float>(weight), x,
                    Part(foreseen_, piece), Part(momentum_, piece));
  });
}

void IslandState::ReadForeseen(int32_t fragment, std::vector<float>& foreseen,
                               std::vector<float>& momentum) const {
  foreseen.resize(held_->fragment_element_count(fragment));
  momentum.resize(foreseen.size());
  Gather(fragment, foreseen_, absl::MakeSpan(foreseen));
  Gather(fragment, momentum_, absl::MakeSpan(momentum));
}

absl::Status IslandState::SetForeseen(int32_t fragment,
                                      absl::Span<const float> foreseen,
                                      absl::Span<const float> momentum) {
  RETURN_IF_ERROR(Acquire({fragment}, LocalAccess::kReplace));
  BeginWrite(fragment);
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    const auto of_piece = [&](absl::Span<const float> values) {
      return values.subspan(piece.fragment_offset, piece.element_count);
    };
    absl::c_copy(of_piece(foreseen), Part(foreseen_, piece).begin());
    absl::c_copy(of_piece(foreseen), trainer_->Local(fragment, piece).begin());
    absl::c_copy(of_piece(momentum), Part(momentum_, piece).begin());
  }
  return absl::OkStatus();
}

absl::Status IslandState::KeepLocal() {
  RETURN_IF_ERROR(AcquireAll(kept_local_.empty() ? LocalAccess::kReplace
                                                 : LocalAccess::kRead));
  if (!kept_local_.empty()) absl::c_copy(local(), kept_local_.begin());
  return absl::OkStatus();
}

absl::Status IslandState::TakeLocalBack() {
  if (kept_local_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(AcquireAll(LocalAccess::kReplace));
  SetLocalFrom(kept_local_);
  return absl::OkStatus();
}

void IslandState::SetLocalToAnchors() { SetLocalFrom(anchors_); }

void IslandState::SetLocal(int32_t fragment) {
  BeginWrite(fragment);
  for (const HeldPiece& piece : held_->pieces(fragment)) {
    std::copy_n(buffer_.begin() + piece.fragment_offset, piece.element_count,
                trainer_->Local(fragment, piece).begin());
  }
}

absl::Status IslandState::StepAnchorsToLocal() {
  RETURN_IF_ERROR(AcquireAll(LocalAccess::kRead));
  const absl::Span<const float> theta = local();
  for (size_t i = 0; i < anchors_.size(); ++i) {
    const float outer_gradient = anchors_[i] - theta[i];
    anchors_[i] = anchors_[i] - outer_gradient;
  }
  return absl::OkStatus();
}

absl::Status IslandState::Reset(bool warm_up) {
  const bool is_kept = trainer_->keeps_state();
  RETURN_IF_ERROR(trainer_->Reset());
  restart_step_count_ = warm_up && !is_kept ? 0 : -1;
  return absl::OkStatus();
}

}  // namespace atl::worker
