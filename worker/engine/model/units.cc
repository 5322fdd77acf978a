#include "worker/engine/model/units.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/engine/model/dense_mlp.h"
#include "worker/engine/model/mixture.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/parts.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// --- Embedding ---------------------------------------------------------------

template <typename T>
EmbeddingUnit<T>::EmbeddingUnit(const ModelConfig& config,
                                const ParameterLayout& layout)
    : span_(layout.units.front()) {
  if (config.is_gpt2()) {
    table_ = OffsetInUnit(layout, "transformer.wte.weight");
    positions_ = OffsetInUnit(layout, "transformer.wpe.weight");
  } else {
    table_ = OffsetInUnit(layout, "model.embed_tokens.weight");
  }
}

template <typename T>
void EmbeddingUnit<T>::Forward(Workspace<T>& work, const T* parameters,
                               const TokenBatch& batch, T* x) const {
  const int64_t channels = work.config.hidden_size;
  work.ops.Embedding(batch.rows(), channels, batch.inputs, parameters + table_,
                     x);
  if (positions_ >= 0) {
    work.ops.AddPositions(batch.rows(), batch.sequence_length, channels,
                          parameters + positions_, x);
  }
}

template <typename T>
void EmbeddingUnit<T>::Backward(Workspace<T>& work, const TokenBatch& batch,
                                const T* dx, T* gradients, bool accumulate,
                                bool add_to_table) const {
  const ModelConfig& config = work.config;
  if (!accumulate && !add_to_table) {
    work.ops.SetZero(config.vocab_size * config.hidden_size,
                     gradients + table_);
  }
  work.ops.EmbeddingBackward(batch.rows(), config.vocab_size,
                             config.hidden_size, batch.inputs, dx,
                             gradients + table_);
  if (positions_ < 0) return;
  if (!accumulate) {
    work.ops.SetZero(config.sequence_length_max * config.hidden_size,
                     gradients + positions_);
  }
  work.ops.PositionsBackward(batch.rows(), batch.sequence_length,
                             config.hidden_size, dx, gradients + positions_);
}

// --- Block -------------------------------------------------------------------

template <typename T>
BlockUnit<T>::BlockUnit(const ModelConfig& config,
                        const ParameterLayout& layout, int64_t layer)
    : config_(config),
      span_(layout.units[1 + layer]),
      mlp_(config.is_mixture() ? MakeMixture<T>(config, layout, layer)
                               : MakeDenseMlp<T>(config, layout, layer)) {
  const bool gpt2 = config.is_gpt2();
  const std::string prefix =
      absl::StrCat(gpt2 ? "transformer.h." : "model.layers.", layer, ".");
  const auto at = [&](const char* name) {
    return OffsetInUnit(layout, prefix + name);
  };
  qkv_ = {
      .in = config.hidden_size, .out = config.qkv_size(), .input_major = gpt2};
  o_ = {
      .in = config.hidden_size, .out = config.hidden_size, .input_major = gpt2};
  if (gpt2) {
    attention_norm_ = {.gain = at("ln_1.weight"), .bias = at("ln_1.bias")};
    mlp_norm_ = {.gain = at("ln_2.weight"), .bias = at("ln_2.bias")};
    qkv_.weight = at("attn.c_attn.weight");
    qkv_.bias = at("attn.c_attn.bias");
    o_.weight = at("attn.c_proj.weight");
    o_.bias = at("attn.c_proj.bias");
  } else {
    attention_norm_ = {.gain = at("input_layernorm.weight")};
    mlp_norm_ = {.gain = at("post_attention_layernorm.weight")};
    qkv_.weight = at("self_attn.q_proj.weight");
    o_.weight = at("self_attn.o_proj.weight");
  }
}

template <typename T>
typename BlockUnit<T>::State BlockUnit<T>::Take(int64_t rows,
                                                Arena& saved) const {
  const int64_t channels = config_.hidden_size;
  State state;
  state.attention_norm = TakeNorm<T>(config_, rows, saved);
  state.qkv = saved.Take<T>(rows * config_.qkv_size());
  state.attention = saved.Take<T>(rows * channels);
  state.log_sum = saved.Take<T>(rows * config_.head_count);
  state.middle = saved.Take<T>(rows * channels);
  state.mlp_norm = TakeNorm<T>(config_, rows, saved);
  return state;
}

template <typename T>
size_t BlockUnit<T>::saved_bytes(int64_t rows) const {
  Arena measure;
  Take(rows, measure);
  mlp_->TakeSaved(rows, measure);
  return measure.used_bytes();
}

template <typename T>
Arena BlockUnit<T>::Open(void* saved, int64_t rows) const {
  return Arena::Over(saved, saved_bytes(rows));
}

template <typename T>
AttentionShape BlockUnit<T>::ShapeOf(const TokenBatch& batch) const {
  return {.batch = batch.batch,
          .sequence_length = batch.sequence_length,
          .head_count = config_.head_count,
          .kv_head_count = config_.kv_head_count,
          .head_dim = config_.head_dim()};
}

template <typename T>
void BlockUnit<T>::Forward(Workspace<T>& work, const T* parameters,
                           const TokenBatch& batch, const T* x, void* saved,
                           T* out, const RouterTotals<T>& totals) const {
  const int64_t rows = batch.rows();
  const AttentionShape shape = ShapeOf(batch);
  Arena arena = Open(saved, rows);
  State s = Take(rows, arena);
  ForwardNorm(work, attention_norm_, parameters, rows, x, s.attention_norm);
  ForwardLinear(work, qkv_, parameters, rows,
                static_cast<const T*>(s.attention_norm.normed), s.qkv);
  if (qkv_.bias >= 0) {
    work.ops.AddBias(rows, qkv_.out, parameters + qkv_.bias, s.qkv);
  }
  if (work.rope_table != nullptr) {
    work.ops.Rope(shape, work.rope_table, /*inverse=*/false, s.qkv);
  }
  work.ops.Attention(shape, s.qkv, s.attention, s.log_sum);
  ForwardLinear(work, o_, parameters, rows, static_cast<const T*>(s.attention),
                work.delta.data);
  ForwardAddNorm(work, mlp_norm_, parameters, rows, x, BiasOf(o_, parameters),
                 s.middle, s.mlp_norm);
  mlp_->Forward(work, parameters, rows, s.mlp_norm.normed, arena,
                work.delta.data, totals);
  work.ops.AddRows(rows, config_.hidden_size, s.middle, work.delta.data,
                   mlp_->bias(parameters), out);
}

template <typename T>
void BlockUnit<T>::BackwardAttention(Workspace<T>& work, const T* parameters,
                                     const TokenBatch& batch, const T* x,
                                     const State& s, T* dx, T* gradients,
                                     bool accumulate) const {
  const int64_t rows = batch.rows();
  const AttentionShape shape = ShapeOf(batch);
  T* const dattention = work.part_gradient.data;
  T* const dqkv = work.qkv_gradient.data;
  T* const dnormed = work.normed_gradient.data;
  BackwardLinear(work, o_, parameters, rows, static_cast<const T*>(s.attention),
                 static_cast<const T*>(dx), dattention, gradients, accumulate);
  work.ops.AttentionBackward(shape, s.qkv, s.attention, s.log_sum, dattention,
                             dqkv);
  if (work.rope_table != nullptr) {
    work.ops.Rope(shape, work.rope_table, /*inverse=*/true, dqkv);
  }
  BackwardLinear(work, qkv_, parameters, rows,
                 static_cast<const T*>(s.attention_norm.normed),
                 static_cast<const T*>(dqkv), dnormed, gradients, accumulate);
  BackwardNorm(work, attention_norm_, parameters, rows, x, s.attention_norm,
               static_cast<const T*>(dnormed), dx, /*add_to_dx=*/true,
               gradients, accumulate);
}

template <typename T>
void BlockUnit<T>::Backward(Workspace<T>& work, const T* parameters,
                            const TokenBatch& batch, const T* x, void* saved,
                            const RouterTotals<T>& totals, T* dx, T* gradients,
                            bool accumulate) const {
  const int64_t rows = batch.rows();
  Arena arena = Open(saved, rows);
  const State s = Take(rows, arena);
  T* const dnormed = work.normed_gradient.data;
  mlp_->Backward(work, parameters, rows, s.mlp_norm.normed, arena, dx, totals,
                 dnormed, gradients, accumulate);
  BackwardNorm(work, mlp_norm_, parameters, rows,
               static_cast<const T*>(s.middle), s.mlp_norm,
               static_cast<const T*>(dnormed), dx, /*add_to_dx=*/true,
               gradients, accumulate);
  BackwardAttention(work, parameters, batch, x, s, dx, gradients, accumulate);
}

// --- Head --------------------------------------------------------------------

template <typename T>
HeadUnit<T>::HeadUnit(const ModelConfig& config, const ParameterLayout& layout)
    : config_(config), span_(layout.units.back()) {
  if (config.is_gpt2()) {
    norm_ = {.gain = OffsetInUnit(layout, "transformer.ln_f.weight"),
             .bias = OffsetInUnit(layout, "transformer.ln_f.bias")};
  } else {
    norm_ = {.gain = OffsetInUnit(layout, "model.norm.weight")};
  }
  if (!config.tie_embeddings) table_ = OffsetInUnit(layout, "lm_head.weight");
}

template <typename T>
size_t HeadUnit<T>::saved_bytes(int64_t rows) const {
  Arena measure;
  TakeNorm<T>(config_, rows, measure);
  return measure.used_bytes();
}

template <typename T>
NormState<T> HeadUnit<T>::Open(void* saved, int64_t rows) const {
  Arena arena = Arena::Over(saved, saved_bytes(rows));
  return TakeNorm<T>(config_, rows, arena);
}

template <typename T>
void HeadUnit<T>::Forward(Workspace<T>& work, const T* parameters, int64_t rows,
                          const T* x, void* saved) const {
  NormState<T> state = Open(saved, rows);
  ForwardNorm(work, norm_, parameters, rows, x, state);
}

template <typename T>
double HeadUnit<T>::Loss(Workspace<T>& work, const T* table,
                         const TokenBatch& batch, void* saved) const {
  const int64_t channels = config_.hidden_size, vocab = config_.vocab_size;
  const NormState<T> state = Open(saved, batch.rows());
  for (int64_t begin = 0; begin < batch.rows(); begin += work.logits.rows) {
    const int64_t rows = std::min(work.logits.rows, batch.rows() - begin);
    work.ops.Linear(rows, vocab, channels, state.normed + begin * channels,
                    table, work.logits.data);
    work.ops.CrossEntropy(rows, vocab, work.logits.data, batch.targets + begin,
                          work.losses + begin);
  }
  return work.ops.Sum(batch.rows(), work.losses);
}

template <typename T>
double HeadUnit<T>::Backward(Workspace<T>& work, const T* parameters,
                             const T* table, const TokenBatch& batch,
                             const T* x, void* saved, T scale, T* dx,
                             T* gradients, T* dtable, bool accumulate) const {
  const int64_t channels = config_.hidden_size, vocab = config_.vocab_size;
  const NormState<T> state = Open(saved, batch.rows());
  T* const logits = work.logits.data;
  for (int64_t begin = 0; begin < batch.rows(); begin += work.logits.rows) {
    const int64_t rows = std::min(work.logits.rows, batch.rows() - begin);
    const T* normed = state.normed + begin * channels;
    work.ops.Linear(rows, vocab, channels, normed, table, logits);
    work.ops.CrossEntropyBackward(rows, vocab, scale, logits,
                                  batch.targets + begin, work.losses + begin);
    work.ops.LinearBackwardWeight(rows, vocab, channels, logits, normed, dtable,
                                  accumulate || begin > 0);
    work.ops.LinearBackwardInput(rows, vocab, channels, logits, table,
                                 work.normed_gradient.row(begin));
  }
  BackwardNorm(work, norm_, parameters, batch.rows(), x, state,
               static_cast<const T*>(work.normed_gradient.data), dx,
               /*add_to_dx=*/false, gradients, accumulate);
  return work.ops.Sum(batch.rows(), work.losses);
}

template <typename T>
const T* HeadUnit<T>::Logits(Workspace<T>& work, const T* table, int64_t rows,
                             int64_t row, void* saved) const {
  const NormState<T> state = Open(saved, rows);
  work.ops.Linear(1, config_.vocab_size, config_.hidden_size,
                  state.normed + row * config_.hidden_size, table,
                  work.logits.data);
  return work.logits.data;
}

template class EmbeddingUnit<float>;
template class EmbeddingUnit<double>;
template class BlockUnit<float>;
template class BlockUnit<double>;
template class HeadUnit<float>;
template class HeadUnit<double>;

}  // namespace atl::engine
