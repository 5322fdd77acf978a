#include "worker/engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

// Logits are made in runs of rows of about this many elements, so that [R, V]
// never exists whole. Part of what a gradient is: its sum follows these runs.
constexpr int64_t kLogitElements = int64_t{2} << 20;
constexpr int64_t kLogitRowsMin = 256;

int64_t OffsetOf(const ParameterLayout& layout, const std::string& name) {
  const ParameterSpec* spec = layout.Find(name);
  CHECK(spec != nullptr) << name;
  return spec->offset;
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Decoder<T>>> Decoder<T>::Create(
    const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops) {
  std::unique_ptr<Decoder> decoder(new Decoder(config, rows_max, ops));
  Arena measure;
  decoder->TakeBuffers(measure);
  ASSIGN_OR_RETURN(decoder->arena_, Arena::Create(measure.used_bytes()));
  decoder->TakeBuffers(decoder->arena_);
  decoder->FillRopeTable();
  return decoder;
}

template <typename T>
Decoder<T>::Decoder(const ModelConfig& config, int64_t rows_max,
                    BasicOps<T>& ops)
    : config_(config),
      layout_(MakeParameterLayout(config)),
      rows_max_(rows_max),
      ops_(ops),
      layers_(config.layer_count) {
  embedding_offset_ = OffsetOf(layout_, "model.embed_tokens.weight");
  last_norm_offset_ = OffsetOf(layout_, "model.norm.weight");
  head_offset_ = config.tie_embeddings ? embedding_offset_
                                       : OffsetOf(layout_, "lm_head.weight");
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    auto at = [&](const char* name) {
      return OffsetOf(
          layout_, absl::StrCat("model.layers.", layer, ".", name, ".weight"));
    };
    offsets_.push_back({.qkv = at("self_attn.q_proj"),
                        .o = at("self_attn.o_proj"),
                        .gate_up = at("mlp.gate_proj"),
                        .down = at("mlp.down_proj"),
                        .attention_norm = at("input_layernorm"),
                        .mlp_norm = at("post_attention_layernorm")});
  }
}

template <typename T>
int64_t Decoder<T>::LogitRowsMax() const {
  const int64_t rows =
      kLogitElements / config_.vocab_size / kLogitRowsMin * kLogitRowsMin;
  return std::min(rows_max_, std::max(kLogitRowsMin, rows));
}

template <typename T>
void Decoder<T>::TakeNorm(Arena& arena, NormState& norm) {
  norm.sum = arena.TakeTensor<T>(rows_max_, config_.hidden_size);
  norm.normed = arena.TakeTensor<T>(rows_max_, config_.hidden_size);
  norm.rstd = arena.Take<T>(rows_max_);
}

template <typename T>
void Decoder<T>::TakeBuffers(Arena& arena) {
  const int64_t channels = config_.hidden_size;
  const int64_t inner = config_.intermediate_size;
  rope_table_ = arena.Take<T>(config_.sequence_length_max * config_.head_dim());
  for (LayerState& layer : layers_) {
    TakeNorm(arena, layer.attention_norm);
    layer.qkv = arena.TakeTensor<T>(rows_max_, config_.qkv_size());
    layer.attention = arena.TakeTensor<T>(rows_max_, channels);
    layer.log_sum = arena.Take<T>(rows_max_ * config_.head_count);
    TakeNorm(arena, layer.mlp_norm);
    layer.gate_up = arena.TakeTensor<T>(rows_max_, 2 * inner);
    layer.swiglu = arena.TakeTensor<T>(rows_max_, inner);
  }
  TakeNorm(arena, last_norm_);
  delta_ = arena.TakeTensor<T>(rows_max_, channels);
  logits_ = arena.TakeTensor<T>(LogitRowsMax(), config_.vocab_size);
  losses_ = arena.Take<T>(rows_max_);
  residual_gradient_ = arena.TakeTensor<T>(rows_max_, channels);
  normed_gradient_ = arena.TakeTensor<T>(rows_max_, channels);
  qkv_gradient_ = arena.TakeTensor<T>(rows_max_, config_.qkv_size());
  block_gradient_ = arena.TakeTensor<T>(rows_max_, std::max(channels, inner));
}

template <typename T>
void Decoder<T>::FillRopeTable() {
  const int64_t half = config_.head_dim() / 2;
  for (int64_t t = 0; t < config_.sequence_length_max; ++t) {
    T* row = rope_table_ + t * config_.head_dim();
    for (int64_t i = 0; i < half; ++i) {
      const double exponent =
          static_cast<double>(2 * i) / static_cast<double>(2 * half);
      const double angle =
          static_cast<double>(t) * std::pow(config_.rope_theta, -exponent);
      row[i] = static_cast<T>(std::cos(angle));
      row[half + i] = static_cast<T>(std::sin(angle));
    }
  }
}

template <typename T>
AttentionShape Decoder<T>::ShapeOf(const TokenBatch& batch) const {
  return {.batch = batch.batch,
          .sequence_length = batch.sequence_length,
          .head_count = config_.head_count,
          .kv_head_count = config_.kv_head_count,
          .head_dim = config_.head_dim()};
}

// --- Forward -----------------------------------------------------------------

template <typename T>
void Decoder<T>::ForwardNorm(int64_t rows, const NormState* before,
                             const T* gain, NormState& norm) {
  const T eps = static_cast<T>(config_.rms_norm_eps);
  if (before == nullptr) {  // norm.sum already holds x_0.
    ops_.AddRmsNorm(rows, config_.hidden_size, eps, norm.sum.data, nullptr,
                    gain, nullptr, norm.normed.data, norm.rstd);
    return;
  }
  ops_.AddRmsNorm(rows, config_.hidden_size, eps, before->sum.data, delta_.data,
                  gain, norm.sum.data, norm.normed.data, norm.rstd);
}

template <typename T>
void Decoder<T>::ForwardLayer(const T* parameters, const TokenBatch& batch,
                              int64_t layer) {
  const int64_t rows = batch.rows();
  const int64_t channels = config_.hidden_size;
  const int64_t inner = config_.intermediate_size;
  const AttentionShape shape = ShapeOf(batch);
  const LayerOffsets& at = offsets_[layer];
  LayerState& state = layers_[layer];

  ForwardNorm(rows, layer == 0 ? nullptr : &layers_[layer - 1].mlp_norm,
              parameters + at.attention_norm, state.attention_norm);
  ops_.Linear(rows, config_.qkv_size(), channels,
              state.attention_norm.normed.data, parameters + at.qkv,
              state.qkv.data);
  ops_.Rope(shape, rope_table_, /*inverse=*/false, state.qkv.data);
  ops_.Attention(shape, state.qkv.data, state.attention.data, state.log_sum);
  ops_.Linear(rows, channels, channels, state.attention.data, parameters + at.o,
              delta_.data);

  ForwardNorm(rows, &state.attention_norm, parameters + at.mlp_norm,
              state.mlp_norm);
  ops_.Linear(rows, 2 * inner, channels, state.mlp_norm.normed.data,
              parameters + at.gate_up, state.gate_up.data);
  ops_.SwiGlu(rows, inner, state.gate_up.data, state.swiglu.data);
  ops_.Linear(rows, channels, inner, state.swiglu.data, parameters + at.down,
              delta_.data);
}

template <typename T>
void Decoder<T>::Forward(const T* parameters, const TokenBatch& batch) {
  DCHECK_GE(batch.rows(), 1);
  CHECK_LE(batch.rows(), rows_max_);
  CHECK_LE(batch.sequence_length, config_.sequence_length_max);
  ops_.Embedding(batch.rows(), config_.hidden_size, batch.inputs,
                 parameters + embedding_offset_,
                 layers_[0].attention_norm.sum.data);
  for (int64_t layer = 0; layer < config_.layer_count; ++layer) {
    ForwardLayer(parameters, batch, layer);
  }
  ForwardNorm(batch.rows(), &layers_.back().mlp_norm,
              parameters + last_norm_offset_, last_norm_);
}

template <typename T>
T Decoder<T>::Head(const T* parameters, const TokenBatch& batch, T* gradients) {
  const int64_t channels = config_.hidden_size;
  const int64_t vocab = config_.vocab_size;
  const T* head = parameters + head_offset_;
  const T scale = T(1) / static_cast<T>(batch.rows());
  for (int64_t begin = 0; begin < batch.rows(); begin += logits_.rows) {
    const int64_t rows = std::min(logits_.rows, batch.rows() - begin);
    const T* normed = last_norm_.normed.row(begin);
    const int32_t* targets = batch.targets + begin;
    ops_.Linear(rows, vocab, channels, normed, head, logits_.data);
    if (gradients == nullptr) {
      ops_.CrossEntropy(rows, vocab, logits_.data, targets, losses_ + begin);
      continue;
    }
    ops_.CrossEntropyBackward(rows, vocab, scale, logits_.data, targets,
                              losses_ + begin);
    ops_.LinearBackwardWeight(rows, vocab, channels, logits_.data, normed,
                              gradients + head_offset_,
                              /*accumulate=*/begin > 0);
    ops_.LinearBackwardInput(rows, vocab, channels, logits_.data, head,
                             normed_gradient_.row(begin));
  }
  return static_cast<T>(ops_.Sum(batch.rows(), losses_) /
                        static_cast<double>(batch.rows()));
}

// --- Backward ----------------------------------------------------------------

template <typename T>
void Decoder<T>::BackwardMlp(const T* parameters, int64_t rows, int64_t layer,
                             T* gradients) {
  const int64_t channels = config_.hidden_size;
  const int64_t inner = config_.intermediate_size;
  const LayerOffsets& at = offsets_[layer];
  LayerState& state = layers_[layer];
  ops_.LinearBackwardWeight(rows, channels, inner, residual_gradient_.data,
                            state.swiglu.data, gradients + at.down, false);
  ops_.LinearBackwardInput(rows, channels, inner, residual_gradient_.data,
                           parameters + at.down, block_gradient_.data);
  ops_.SwiGluBackward(rows, inner, state.gate_up.data, block_gradient_.data,
                      state.gate_up.data);
  ops_.LinearBackwardWeight(rows, 2 * inner, channels, state.gate_up.data,
                            state.mlp_norm.normed.data, gradients + at.gate_up,
                            false);
  ops_.LinearBackwardInput(rows, 2 * inner, channels, state.gate_up.data,
                           parameters + at.gate_up, normed_gradient_.data);
  ops_.RmsNormBackward(rows, channels, normed_gradient_.data,
                       state.mlp_norm.sum.data, state.mlp_norm.rstd,
                       parameters + at.mlp_norm, residual_gradient_.data,
                       gradients + at.mlp_norm, /*accumulate=*/true);
}

template <typename T>
void Decoder<T>::BackwardAttention(const T* parameters, const TokenBatch& batch,
                                   int64_t layer, T* gradients) {
  const int64_t rows = batch.rows();
  const int64_t channels = config_.hidden_size;
  const AttentionShape shape = ShapeOf(batch);
  const LayerOffsets& at = offsets_[layer];
  LayerState& state = layers_[layer];
  ops_.LinearBackwardWeight(rows, channels, channels, residual_gradient_.data,
                            state.attention.data, gradients + at.o, false);
  ops_.LinearBackwardInput(rows, channels, channels, residual_gradient_.data,
                           parameters + at.o, block_gradient_.data);
  ops_.AttentionBackward(shape, state.qkv.data, state.attention.data,
                         state.log_sum, block_gradient_.data,
                         qkv_gradient_.data);
  ops_.Rope(shape, rope_table_, /*inverse=*/true, qkv_gradient_.data);
  ops_.LinearBackwardWeight(
      rows, config_.qkv_size(), channels, qkv_gradient_.data,
      state.attention_norm.normed.data, gradients + at.qkv, false);
  ops_.LinearBackwardInput(rows, config_.qkv_size(), channels,
                           qkv_gradient_.data, parameters + at.qkv,
                           normed_gradient_.data);
  ops_.RmsNormBackward(rows, channels, normed_gradient_.data,
                       state.attention_norm.sum.data, state.attention_norm.rstd,
                       parameters + at.attention_norm, residual_gradient_.data,
                       gradients + at.attention_norm, /*accumulate=*/true);
}

template <typename T>
void Decoder<T>::Backward(const T* parameters, const TokenBatch& batch,
                          T* gradients) {
  const int64_t rows = batch.rows();
  const int64_t channels = config_.hidden_size;
  ops_.RmsNormBackward(rows, channels, normed_gradient_.data,
                       last_norm_.sum.data, last_norm_.rstd,
                       parameters + last_norm_offset_, residual_gradient_.data,
                       gradients + last_norm_offset_, /*accumulate=*/false);
  for (int64_t layer = config_.layer_count - 1; layer >= 0; --layer) {
    BackwardMlp(parameters, rows, layer, gradients);
    BackwardAttention(parameters, batch, layer, gradients);
  }
  T* embedding_gradient = gradients + embedding_offset_;
  if (!config_.tie_embeddings) {
    ops_.SetZero(config_.vocab_size * channels, embedding_gradient);
  }
  ops_.EmbeddingBackward(rows, config_.vocab_size, channels, batch.inputs,
                         residual_gradient_.data, embedding_gradient);
}

template <typename T>
T Decoder<T>::ForwardBackward(const T* parameters, const TokenBatch& batch,
                              T* gradients) {
  Forward(parameters, batch);
  const T loss = Head(parameters, batch, gradients);
  Backward(parameters, batch, gradients);
  return loss;
}

template <typename T>
T Decoder<T>::Loss(const T* parameters, const TokenBatch& batch) {
  Forward(parameters, batch);
  return Head(parameters, batch, nullptr);
}

template <typename T>
const T* Decoder<T>::Logits(const T* parameters, const int32_t* tokens,
                            int64_t length, int64_t position) {
  Forward(parameters, {.batch = 1,
                       .sequence_length = length,
                       .inputs = tokens,
                       .targets = nullptr});
  ops_.Linear(1, config_.vocab_size, config_.hidden_size,
              last_norm_.normed.row(position), parameters + head_offset_,
              logits_.data);
  return logits_.data;
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace atl::engine
