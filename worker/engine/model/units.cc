#include "worker/engine/model/units.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/collective/call.h"
#include "worker/engine/model/exchange.h"
#include "worker/engine/model/ring_attention.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// --- Embedding ---------------------------------------------------------------

template <typename T>
EmbeddingUnit<T>::EmbeddingUnit(const ModelConfig& config,
                                const ParameterLayout& layout,
                                const UnitSlice& slice)
    : vocabulary_(FindVocabulary(config, slice)),
      slice_(slice),
      span_(layout.units.front()) {
  if (config.is_gpt2()) {
    table_ = OffsetInUnit(layout, "transformer.wte.weight");
    positions_ = OffsetInUnit(layout, "transformer.wpe.weight");
  } else {
    table_ = OffsetInUnit(layout, "model.embed_tokens.weight");
  }
}

template <typename T>
const T* EmbeddingUnit<T>::LocalPositions(Workspace<T>& work,
                                          const T* parameters,
                                          int64_t sequence_length) const {
  const T* table = parameters + positions_;
  if (slice_.cp_size == 1) return table;
  const int64_t channels = work.config.hidden_size;
  T* to = work.positions;
  for (const Range& run :
       SequenceRuns(slice_, sequence_length * slice_.cp_size)) {
    const int64_t count = run.size() * channels;
    work.ops.CopyColumns(1, count, table + run.begin * channels, count, to,
                         count);
    to += count;
  }
  return work.positions;
}

template <typename T>
void EmbeddingUnit<T>::Forward(Workspace<T>& work, const T* parameters,
                               const TokenBatch& batch, T* x) const {
  if (!work.ok()) return;
  const int64_t channels = work.config.hidden_size, rows = batch.rows();
  T* const whole = PartialRows(work, x);
  work.ops.Embedding(rows, vocabulary_.begin, vocabulary_.size(), channels,
                     batch.inputs, parameters + table_, whole);
  // Only one rank adds positions: ReduceRows sums over tp.
  if (positions_ >= 0 && slice_.tp_rank == 0) {
    work.ops.AddPositions(
        rows, batch.sequence_length, channels,
        LocalPositions(work, parameters, batch.sequence_length), whole);
  }
  ReduceRows(work, rows, whole, x);
}

template <typename T>
void EmbeddingUnit<T>::BackwardPositions(Workspace<T>& work,
                                         const TokenBatch& batch, const T* dx,
                                         T* gradients, bool accumulate) const {
  const int64_t channels = work.config.hidden_size;
  const int64_t length = batch.sequence_length;
  T* const dpositions = gradients + positions_;
  if (!accumulate) {
    work.ops.SetZero(work.config.sequence_length_max * channels, dpositions);
  }
  if (slice_.cp_size == 1) {
    work.ops.PositionsBackward(batch.rows(), length, channels, dx, dpositions);
    return;
  }
  const T* from = work.positions;
  work.ops.SetZero(length * channels, work.positions);
  work.ops.PositionsBackward(batch.rows(), length, channels, dx,
                             work.positions);
  for (const Range& run : SequenceRuns(slice_, length * slice_.cp_size)) {
    work.ops.Axpy(run.size() * channels, T(1), from,
                  dpositions + run.begin * channels);
    from += run.size() * channels;
  }
}

template <typename T>
void EmbeddingUnit<T>::Backward(Workspace<T>& work, const TokenBatch& batch,
                                const T* dx, T* gradients, bool accumulate,
                                bool add_to_table) const {
  if (!work.ok()) return;
  const int64_t channels = work.config.hidden_size, rows = batch.rows();
  const int64_t ids = vocabulary_.size();
  const T* whole = GatherRows(work, rows, dx, work.gathered_gradient.data);
  if (!accumulate && !add_to_table) {
    work.ops.SetZero(ids * channels, gradients + table_);
  }
  work.ops.EmbeddingBackward(rows, vocabulary_.begin, ids, channels,
                             batch.inputs, whole, gradients + table_);
  if (positions_ >= 0) {
    BackwardPositions(work, batch, whole, gradients, accumulate);
  }
}

// --- Block -------------------------------------------------------------------

template <typename T>
BlockUnit<T>::BlockUnit(const ModelConfig& config,
                        const ParameterLayout& layout, int64_t layer,
                        const UnitSlice& slice, Keep keep)
    : config_(config),
      slice_(slice),
      keep_(keep),
      span_(layout.units[1 + layer]),
      mlp_(config.is_mixture()
               ? MakeMixture<T>(config, layout, slice, layer, keep)
               : MakeDenseMlp<T>(config, layout, slice, layer, keep)) {
  const bool gpt2 = config.is_gpt2();
  const std::string prefix =
      absl::StrCat(gpt2 ? "transformer.h." : "model.layers.", layer, ".");
  const auto at = [&](const char* name) {
    return OffsetInUnit(layout, prefix + name);
  };
  qkv_ = {.in = config.hidden_size,
          .out = config.qkv_size() / slice.tp_size,
          .input_major = gpt2};
  o_ = {.in = config.hidden_size / slice.tp_size,
        .out = config.hidden_size,
        .input_major = gpt2};
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
  mlp_norm_.slot = 1;
}

template <typename T>
typename BlockUnit<T>::State BlockUnit<T>::Take(int64_t rows,
                                                Arena& saved) const {
  const int64_t channels = config_.hidden_size, tp = slice_.tp_size;
  const int64_t stream_rows = slice_.stream_rows(rows);
  State state;
  state.attention_norm = TakeNorm<T>(config_, stream_rows, keep_, saved);
  state.qkv = saved.Take<T>(rows * qkv_.out);
  state.attention = saved.Take<T>(rows * channels / tp);
  state.log_sum = saved.Take<T>(rows * config_.head_count / tp);
  state.middle = saved.Take<T>(stream_rows * channels);
  state.mlp_norm = TakeNorm<T>(config_, stream_rows, keep_, saved);
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
AttentionShape BlockUnit<T>::MakeShape(const TokenBatch& batch) const {
  return {.batch = batch.batch,
          .sequence_length = batch.sequence_length,
          .head_count = config_.head_count / slice_.tp_size,
          .kv_head_count = config_.kv_head_count / slice_.tp_size,
          .head_dim = config_.head_dim()};
}

template <typename T>
void BlockUnit<T>::Forward(Workspace<T>& work, const T* parameters,
                           const TokenBatch& batch, const T* x, void* saved,
                           T* out, const RouterTotals<T>& totals) const {
  if (!work.ok()) return;
  const int64_t rows = batch.rows(), stream_rows = slice_.stream_rows(rows);
  Arena arena = Open(saved, rows);
  State s = Take(rows, arena);
  UseNormed(work, s.attention_norm);
  ForwardNorm(work, attention_norm_, parameters, stream_rows, x,
              s.attention_norm);
  const T* normed =
      GatherRows<T>(work, rows, s.attention_norm.normed, work.gathered.data);
  ForwardLinear(work, qkv_, parameters, rows, normed, s.qkv);
  if (qkv_.bias >= 0) {
    work.ops.AddBias(rows, qkv_.out, parameters + qkv_.bias, s.qkv);
  }
  const AttentionShape shape = MakeShape(batch);
  if (const T* table = LocalRopeTable(work, batch.sequence_length)) {
    work.ops.Rope(shape, table, /*inverse=*/false, s.qkv);
  }
  RingAttention(work, shape, s.qkv, s.attention, s.log_sum);
  T* partial = PartialRows(work, work.delta.data);
  ForwardLinear(work, o_, parameters, rows, static_cast<const T*>(s.attention),
                partial);
  ReduceRows<T>(work, rows, partial, work.delta.data);
  UseNormed(work, s.mlp_norm);
  ForwardAddNorm(work, mlp_norm_, parameters, stream_rows, x,
                 FindBias(o_, parameters), s.middle, s.mlp_norm);
  normed = GatherRows<T>(work, rows, s.mlp_norm.normed, work.gathered.data);
  mlp_->Forward(work, parameters, rows, batch.sequence_length, normed, arena,
                partial, totals);
  ReduceRows<T>(work, rows, partial, work.delta.data);
  work.ops.AddRows(stream_rows, config_.hidden_size, s.middle, work.delta.data,
                   mlp_->bias(parameters), out);
}

template <typename T>
void BlockUnit<T>::Renorm(Workspace<T>& work, const NormMap& map,
                          const T* parameters, int64_t stream_rows, const T* x,
                          NormState<T>& state) const {
  if (keep_ == Keep::kAll) return;
  UseNormed(work, state);
  ForwardNorm(work, map, parameters, stream_rows, x, state);
}

template <typename T>
void BlockUnit<T>::BackwardAttention(Workspace<T>& work, const T* parameters,
                                     const TokenBatch& batch, const T* x,
                                     State& s, T* dx, T* gradients,
                                     bool accumulate) const {
  const int64_t rows = batch.rows();
  const AttentionShape shape = MakeShape(batch);
  T* const dattention = work.part_gradient.data;
  T* const dqkv = work.qkv_gradient.data;
  T* const dnormed = work.normed_gradient.data;
  const T* dout = GatherRows<T>(work, rows, dx, work.gathered_gradient.data);
  Renorm(work, attention_norm_, parameters, slice_.stream_rows(rows), x,
         s.attention_norm);
  // Overlaps with the backward pass of the attention.
  GatheredRows<T> normed = StartGatherRows<T>(
      work, rows, s.attention_norm.normed, work.gathered.data);
  BackwardLinear(work, o_, parameters, rows, static_cast<const T*>(s.attention),
                 dout, dattention, gradients, accumulate);
  RingAttentionBackward<T>(work, shape, s.qkv, s.attention, s.log_sum,
                           dattention, dqkv);
  if (const T* table = LocalRopeTable(work, batch.sequence_length)) {
    work.ops.Rope(shape, table, /*inverse=*/true, dqkv);
  }
  T* const partial = PartialRows(work, dnormed);
  BackwardLinear(work, qkv_, parameters, rows, normed.Wait(work),
                 static_cast<const T*>(dqkv), partial, gradients, accumulate);
  ReduceRows<T>(work, rows, partial, dnormed);
  BackwardNorm(work, attention_norm_, parameters, slice_.stream_rows(rows), x,
               s.attention_norm, static_cast<const T*>(dnormed), dx,
               /*add_to_dx=*/true, gradients, accumulate);
}

template <typename T>
void BlockUnit<T>::Backward(Workspace<T>& work, const T* parameters,
                            const TokenBatch& batch, const T* x, void* saved,
                            const RouterTotals<T>& totals, T* dx, T* gradients,
                            bool accumulate) const {
  if (!work.ok()) return;
  const int64_t rows = batch.rows();
  Arena arena = Open(saved, rows);
  State s = Take(rows, arena);
  Renorm(work, mlp_norm_, parameters, slice_.stream_rows(rows), s.middle,
         s.mlp_norm);
  T* const dnormed = work.normed_gradient.data;
  T* const partial = PartialRows(work, dnormed);
  const T* normed =
      GatherRows<T>(work, rows, s.mlp_norm.normed, work.gathered.data);
  const T* dout = GatherRows<T>(work, rows, dx, work.gathered_gradient.data);
  mlp_->Backward(work, parameters, rows, normed, arena, dout, totals, partial,
                 gradients, accumulate);
  ReduceRows<T>(work, rows, partial, dnormed);
  BackwardNorm(work, mlp_norm_, parameters, slice_.stream_rows(rows),
               static_cast<const T*>(s.middle), s.mlp_norm,
               static_cast<const T*>(dnormed), dx, /*add_to_dx=*/true,
               gradients, accumulate);
  BackwardAttention(work, parameters, batch, x, s, dx, gradients, accumulate);
  SumNormGradients(work, {attention_norm_, mlp_norm_}, gradients, accumulate);
}

// --- Head --------------------------------------------------------------------

template <typename T>
HeadUnit<T>::HeadUnit(const ModelConfig& config, const ParameterLayout& layout,
                      const UnitSlice& slice)
    : config_(config),
      slice_(slice),
      vocabulary_(FindVocabulary(config, slice)),
      span_(layout.units.back()) {
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
  TakeNorm<T>(config_, slice_.stream_rows(rows), Keep::kAll, measure);
  return measure.used_bytes();
}

template <typename T>
NormState<T> HeadUnit<T>::Open(void* saved, int64_t rows) const {
  Arena arena = Arena::Over(saved, saved_bytes(rows));
  return TakeNorm<T>(config_, slice_.stream_rows(rows), Keep::kAll, arena);
}

template <typename T>
void HeadUnit<T>::Forward(Workspace<T>& work, const T* parameters, int64_t rows,
                          const T* x, void* saved) const {
  if (!work.ok()) return;
  NormState<T> state = Open(saved, rows);
  ForwardNorm(work, norm_, parameters, slice_.stream_rows(rows), x, state);
}

template <typename T>
void HeadUnit<T>::Project(Workspace<T>& work, const T* table, int64_t rows,
                          const T* normed) const {
  work.ops.Linear(rows, vocabulary_.size(), config_.hidden_size, normed, table,
                  work.logits.data);
}

template <typename T>
void HeadUnit<T>::Normalize(Workspace<T>& work, int64_t rows,
                            const int32_t* targets, T* losses) const {
  T* const target_logits = work.logit_sums + rows;
  work.ops.LogitTops(rows, vocabulary_.size(), work.logits.data,
                     work.logit_tops);
  ReduceOverTp(work, rows, work.logit_tops, collective::Reduction::kMax);
  work.ops.LogitSums(rows, vocabulary_.begin, vocabulary_.size(),
                     work.logits.data, targets, work.logit_tops,
                     work.logit_sums, target_logits);
  ReduceOverTp(work, 2 * rows, work.logit_sums, collective::Reduction::kSum);
  work.ops.LogitLosses(rows, work.logit_tops, work.logit_sums, target_logits,
                       losses);
}

template <typename T>
void HeadUnit<T>::BackwardLogits(Workspace<T>& work, int64_t rows, T scale,
                                 const int32_t* targets, T* losses) const {
  if (slice_.tp_size == 1) {
    work.ops.CrossEntropyBackward(rows, config_.vocab_size, scale,
                                  work.logits.data, targets, losses);
    return;
  }
  Normalize(work, rows, targets, losses);
  work.ops.LogitGradients(rows, vocabulary_.begin, vocabulary_.size(), scale,
                          targets, work.logit_tops, work.logit_sums,
                          work.logits.data);
}

template <typename T>
double HeadUnit<T>::Loss(Workspace<T>& work, const T* table,
                         const TokenBatch& batch, void* saved) const {
  if (!work.ok()) return 0;
  const int64_t all = batch.rows();
  const T* normed =
      GatherRows<T>(work, all, Open(saved, all).normed, work.gathered.data);
  for (int64_t begin = 0; begin < all; begin += work.logits.rows) {
    const int64_t rows = std::min(work.logits.rows, all - begin);
    const int32_t* targets = batch.targets + begin;
    Project(work, table, rows, normed + begin * config_.hidden_size);
    if (slice_.tp_size == 1) {
      work.ops.CrossEntropy(rows, config_.vocab_size, work.logits.data, targets,
                            work.losses + begin);
    } else {
      Normalize(work, rows, targets, work.losses + begin);
    }
  }
  return work.ops.Sum(all, work.losses);
}

template <typename T>
void HeadUnit<T>::QueueBackward(Workspace<T>& work, const T* parameters,
                                const T* table, const TokenBatch& batch,
                                const T* x, void* saved, T scale, T* dx,
                                T* gradients, T* dtable,
                                bool accumulate) const {
  if (!work.ok()) return;
  const int64_t channels = config_.hidden_size, ids = vocabulary_.size();
  const int64_t all = batch.rows();
  const NormState<T> state = Open(saved, all);
  const T* whole = GatherRows<T>(work, all, state.normed, work.gathered.data);
  T* const dnormed = work.normed_gradient.data;
  T* const partial = PartialRows(work, dnormed);
  for (int64_t begin = 0; begin < all; begin += work.logits.rows) {
    const int64_t rows = std::min(work.logits.rows, all - begin);
    const T* normed = whole + begin * channels;
    Project(work, table, rows, normed);
    BackwardLogits(work, rows, scale, batch.targets + begin,
                   work.losses + begin);
    work.ops.LinearBackwardWeight(rows, ids, channels, work.logits.data, normed,
                                  dtable, accumulate || begin > 0);
    work.ops.LinearBackwardInput(rows, ids, channels, work.logits.data, table,
                                 partial + begin * channels);
  }
  ReduceRows<T>(work, all, partial, dnormed);
  BackwardNorm(work, norm_, parameters, slice_.stream_rows(all), x, state,
               static_cast<const T*>(dnormed), dx, /*add_to_dx=*/false,
               gradients, accumulate);
  SumNormGradients(work, {norm_}, gradients, accumulate);
}

template <typename T>
const T* HeadUnit<T>::Logits(Workspace<T>& work, const T* table, int64_t rows,
                             int64_t row, void* saved) const {
  const T* normed =
      GatherRows<T>(work, rows, Open(saved, rows).normed, work.gathered.data);
  Project(work, table, 1, normed + row * config_.hidden_size);
  return work.logits.data;
}

template class EmbeddingUnit<float>;
template class EmbeddingUnit<double>;
template class BlockUnit<float>;
template class BlockUnit<double>;
template class HeadUnit<float>;
template class HeadUnit<double>;

}  // namespace atl::engine
