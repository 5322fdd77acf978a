// The units of a decoder: embedding | block 0 | ... | block L - 1 | head.
// Thread-compatible: units are constant; a workspace belongs to one thread.
//
// A pipeline stage places whole units; a sharded rank gathers whole units. A
// unit has one contiguous span of the flat parameters (ParameterLayout::units).
// The residual stream x [R, C] travels between units.
//
// A unit holds only offsets. Each (unit, micro-batch) in progress has a buffer
// of the caller with saved_bytes(rows) bytes and Arena's alignment. So backward
// passes may run in any order, and another Forward of the same input may fill
// the buffer again. Backward reads the input x again, overwrites the buffer,
// and writes gradients of parameters, or adds them if `accumulate`.
//
// On a slice of a model (model/unit_slice.h) a unit is made from LocalLayout's
// `layout`, and the workspace has the groups. `rows` and TokenBatch then
// describe the B T tokens that a tp group computes together, T the length of
// the rank's part of a sequence (CutSequences). All ranks of a tp group get the
// same batch. A rank has stream_rows(rows) rows of the stream and its gradient.
// All ranks of a group call the same units in the same order.
//
// After Backward the gradient of a parameter that tp divides is complete for
// this rank's part. Any other gradient is bit-identical on all tp ranks. Both
// cover the rank's own tokens: the caller sums them over kShardGroup (and
// dp_replicate), those of experts with ep > 1 over kExpertShardGroup. After an
// error of a group, calls do nothing (Workspace::status).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/parts.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// B sequences of T tokens: `inputs` and `targets` are [B, T], ids in [0, V).
struct TokenBatch {
  int64_t batch = 0;            // B
  int64_t sequence_length = 0;  // T, on this rank
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;

  int64_t rows() const { return batch * sequence_length; }
};

// The token embedding [V, C], and GPT-2's position embedding.
template <typename T>
class EmbeddingUnit {
 public:
  EmbeddingUnit(const ModelConfig& config, const ParameterLayout& layout,
                const UnitSlice& slice = {});

  const ParameterSpan& span() const { return span_; }
  // Offset of the token embedding in the span: a tied head's table.
  int64_t table_offset() const { return table_; }

  void Forward(Workspace<T>& work, const T* parameters, const TokenBatch& batch,
               T* x) const;
  // `add_to_table`: adds to the token embedding's gradient even without
  // `accumulate`, because a tied head has written it.
  void Backward(Workspace<T>& work, const TokenBatch& batch, const T* dx,
                T* gradients, bool accumulate, bool add_to_table) const;

 private:
  // The learned positions [T, C] of the rank's part of a sequence.
  const T* LocalPositions(Workspace<T>& work, const T* parameters,
                          int64_t sequence_length) const;
  void BackwardPositions(Workspace<T>& work, const TokenBatch& batch,
                         const T* dx, T* gradients, bool accumulate) const;

  const Range vocabulary_;  // This rank's ids.
  const UnitSlice slice_;
  ParameterSpan span_;
  int64_t table_ = 0;
  int64_t positions_ = -1;  // -1: none.
};

// x = x + attention(norm(x)); x = x + mlp(norm(x)). With kGpt2 the norms are
// LayerNorms and the maps have biases; otherwise queries and keys are rotated.
template <typename T>
class BlockUnit {
 public:
  BlockUnit(const ModelConfig& config, const ParameterLayout& layout,
            int64_t layer, const UnitSlice& slice = {}, Keep keep = Keep::kAll);

  const ParameterSpan& span() const { return span_; }
  size_t saved_bytes(int64_t rows) const;

  // Keep::kProducts makes the saved buffer smaller by 2 C + F numbers per row
  // (of Llama's 7 C + 3 F without tp); Backward recomputes them. `out` must not
  // be x. `batch` gives the shape; its tokens are not read. Adds to `totals`.
  void Forward(Workspace<T>& work, const T* parameters, const TokenBatch& batch,
               const T* x, void* saved, T* out,
               const RouterTotals<T>& totals) const;
  // `dx` is the gradient of the output on entry and that of x on return.
  // `totals` cover the forward passes of all layers.
  void Backward(Workspace<T>& work, const T* parameters,
                const TokenBatch& batch, const T* x, void* saved,
                const RouterTotals<T>& totals, T* dx, T* gradients,
                bool accumulate) const;

 private:
  struct State {
    NormState<T> attention_norm, mlp_norm;  // For [R', C]
    T* qkv;                                 // [R, Q], rotated
    T* attention;                           // [R, C / tp]
    T* log_sum;                             // [B, H / tp, T]
    T* middle;                              // [R', C], x after attention
  };
  State Take(int64_t rows, Arena& saved) const;
  void Renorm(Workspace<T>& work, const NormMap& map, const T* parameters,
              int64_t stream_rows, const T* x, NormState<T>& state) const;
  Arena Open(void* saved, int64_t rows) const;
  AttentionShape MakeShape(const TokenBatch& batch) const;
  void BackwardAttention(Workspace<T>& work, const T* parameters,
                         const TokenBatch& batch, const T* x, State& state,
                         T* dx, T* gradients, bool accumulate) const;

  const ModelConfig config_;
  const UnitSlice slice_;
  const Keep keep_;
  ParameterSpan span_;
  NormMap attention_norm_, mlp_norm_;
  LinearMap qkv_, o_;
  std::unique_ptr<Mlp<T>> mlp_;
};

// The last norm, the projection onto the vocabulary, and the cross-entropy.
// `table` [V, C] is the projection: in the head's own span, or the embedding's
// if it is tied. With tp each rank has the logits of its part of the
// vocabulary; ranks reduce only the maximum and the sum of exponentials.
template <typename T>
class HeadUnit {
 public:
  HeadUnit(const ModelConfig& config, const ParameterLayout& layout,
           const UnitSlice& slice = {});

  const ParameterSpan& span() const { return span_; }
  // Offset of the table in the span; -1 if it is tied.
  int64_t table_offset() const { return table_; }
  size_t saved_bytes(int64_t rows) const;

  void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
               const T* x, void* saved) const;
  // Sum of the losses in nats, after Forward; the same on all tp ranks.
  double Loss(Workspace<T>& work, const T* table, const TokenBatch& batch,
              void* saved) const;
  // Loss, and the gradient of `scale` times that sum: of x in `dx`, of the
  // table in `dtable`, of the rest of the span in `gradients`.
  double Backward(Workspace<T>& work, const T* parameters, const T* table,
                  const TokenBatch& batch, const T* x, void* saved, T scale,
                  T* dx, T* gradients, T* dtable, bool accumulate) const {
    QueueBackward(work, parameters, table, batch, x, saved, scale, dx,
                  gradients, dtable, accumulate);
    return work.ok() ? work.ops.Sum(batch.rows(), work.losses) : 0;
  }
  // Backward without the sum. Its terms are in work.losses.
  void QueueBackward(Workspace<T>& work, const T* parameters, const T* table,
                     const TokenBatch& batch, const T* x, void* saved, T scale,
                     T* dx, T* gradients, T* dtable, bool accumulate) const;
  // Logits of row `row`, after Forward, for the rank's part of the vocabulary
  // (FindVocabulary). Valid until the workspace is used again.
  const T* Logits(Workspace<T>& work, const T* table, int64_t rows, int64_t row,
                  void* saved) const;

 private:
  NormState<T> Open(void* saved, int64_t rows) const;
  // Writes the logits of `rows` rows of `normed` to work.logits.
  void Project(Workspace<T>& work, const T* table, int64_t rows,
               const T* normed) const;
  // Reduces these logits' softmax statistics over tp, and computes the losses.
  void Normalize(Workspace<T>& work, int64_t rows, const int32_t* targets,
                 T* losses) const;
  // Computes the losses of `rows` rows, and turns their logits into gradients.
  void BackwardLogits(Workspace<T>& work, int64_t rows, T scale,
                      const int32_t* targets, T* losses) const;

  const ModelConfig config_;
  const UnitSlice slice_;
  const Range vocabulary_;  // This rank's ids.
  ParameterSpan span_;
  NormMap norm_;
  int64_t table_ = -1;
};

extern template class EmbeddingUnit<float>;
extern template class EmbeddingUnit<double>;
extern template class BlockUnit<float>;
extern template class BlockUnit<double>;
extern template class HeadUnit<float>;
extern template class HeadUnit<double>;

}  // namespace atl::engine
