// The units of a decoder: embedding | block 0 | ... | block L - 1 | head.
//
// A unit is what a pipeline stage places and what a sharded rank gathers: it
// has one contiguous span of the flat parameters (ParameterLayout::units), and
// calls take that span alone. Between units travels the residual stream x
// [R, C]. A unit object holds offsets only: what the backward pass needs lies
// in a buffer of the caller, one for every (unit, micro-batch) that is under
// way, of saved_bytes(rows) bytes, aligned as Arena aligns. So micro-batches
// may be forwarded and taken back in any order, and what a forward saved may be
// dropped and made again by another forward of the same input.
//
// Backward takes the gradient of the unit's output and gives that of its input;
// it reads the input x again and uses the saved buffer up. Gradients of
// parameters are written, or added to what is there if `accumulate`.
//
// On a slice of a model (model/unit_slice.h) a unit is made of LocalLayout's
// `layout`, and the workspace has the groups. `rows` and TokenBatch are then of
// what a tp group computes together, B T with T the length of the rank's part
// of a sequence (CutSequences); all ranks of a tp group are given the same
// batch. A residual stream, and its gradient, has the rank's stream_rows(rows)
// of these rows. All ranks of a group call the same units in the same order.
// When Backward returns, the gradient of
//
//   what tp divides         is whole: nothing of it is elsewhere
//   what tp does not divide is the same on all tp ranks, bit for bit
//   either                  is of the rank's own tokens: it is to be summed
//   over
//                           kShardGroup (and dp_replicate), that of an expert
//                           with ep > 1 over kExpertShardGroup
//
// After an error of a group calls do nothing, see Workspace::status.
//
// Thread-compatible: units are constant, a workspace is one thread's.

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

// Tokens of B sequences of T: `inputs` and `targets` have shape [B, T], ids in
// [0, V).
struct TokenBatch {
  int64_t batch = 0;            // B
  int64_t sequence_length = 0;  // T, of this rank
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;

  int64_t rows() const { return batch * sequence_length; }
};

// The token embedding [V, C], with GPT-2 also that of positions.
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
  // `add_to_table`: the token embedding's gradient is added to, whatever
  // `accumulate` says, because a tied head has written it.
  void Backward(Workspace<T>& work, const TokenBatch& batch, const T* dx,
                T* gradients, bool accumulate, bool add_to_table) const;

 private:
  // The learned positions of the rank's part of a sequence, [T, C].
  const T* LocalPositions(Workspace<T>& work, const T* parameters,
                          int64_t sequence_length) const;
  void BackwardPositions(Workspace<T>& work, const TokenBatch& batch,
                         const T* dx, T* gradients, bool accumulate) const;

  const Range vocabulary_;  // The ids that are this rank's.
  const UnitSlice slice_;
  ParameterSpan span_;
  int64_t table_ = 0;
  int64_t positions_ = -1;  // -1: none.
};

// x = x + attention(norm(x)); x = x + mlp(norm(x)). With kGpt2 the norms are
// LayerNorms and the maps have biases; else queries and keys are rotated.
template <typename T>
class BlockUnit {
 public:
  BlockUnit(const ModelConfig& config, const ParameterLayout& layout,
            int64_t layer, const UnitSlice& slice = {}, Keep keep = Keep::kAll);

  const ParameterSpan& span() const { return span_; }
  size_t saved_bytes(int64_t rows) const;

  // With Keep::kProducts the saved buffer is smaller by 2 C + F numbers a row
  // (Llama's without tp: 7 C + 3 F otherwise) and Backward makes them again.
  //
  // `out` may not be x. `batch` gives the shape; its tokens are not read. Adds
  // to `totals`.
  void Forward(Workspace<T>& work, const T* parameters, const TokenBatch& batch,
               const T* x, void* saved, T* out,
               const RouterTotals<T>& totals) const;
  // `dx` is the gradient of the output, and becomes that of x. `totals` are
  // those of all layers' forwards.
  void Backward(Workspace<T>& work, const T* parameters,
                const TokenBatch& batch, const T* x, void* saved,
                const RouterTotals<T>& totals, T* dx, T* gradients,
                bool accumulate) const;

 private:
  struct State {
    NormState<T> attention_norm, mlp_norm;  // Of [R', C]
    T* qkv;                                 // [R, Q], rotated
    T* attention;                           // [R, C / tp]
    T* log_sum;                             // [B, H / tp, T]
    T* middle;                              // [R', C], x after attention
  };
  State Take(int64_t rows, Arena& saved) const;
  // Makes a norm's output again, where it was not kept.
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
// `table` is what it projects with, [V, C]: of the head's own span, or the
// embedding's if it is tied. With tp each rank has the logits of its part of
// the vocabulary; they are not gathered, but their largest and the sum of their
// exponentials are reduced.
template <typename T>
class HeadUnit {
 public:
  HeadUnit(const ModelConfig& config, const ParameterLayout& layout,
           const UnitSlice& slice = {});

  const ParameterSpan& span() const { return span_; }
  // Offset of the table in the span; -1 if it is tied.
  int64_t table_offset() const { return table_; }
  size_t saved_bytes(int64_t rows) const;

  // The norm.
  void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
               const T* x, void* saved) const;
  // Sum of the losses in nats of `batch`, after Forward; the same on all tp
  // ranks.
  double Loss(Workspace<T>& work, const T* table, const TokenBatch& batch,
              void* saved) const;
  // The same, and the gradient of `scale` times that sum: of x in `dx`, of the
  // span in `gradients` (a table of its own excepted), of the table in
  // `dtable`.
  double Backward(Workspace<T>& work, const T* parameters, const T* table,
                  const TokenBatch& batch, const T* x, void* saved, T scale,
                  T* dx, T* gradients, T* dtable, bool accumulate) const {
    QueueBackward(work, parameters, table, batch, x, saved, scale, dx,
                  gradients, dtable, accumulate);
    return work.ok() ? work.ops.Sum(batch.rows(), work.losses) : 0;
  }
  // The same without the sum, whose terms are in work.losses.
  void QueueBackward(Workspace<T>& work, const T* parameters, const T* table,
                     const TokenBatch& batch, const T* x, void* saved, T scale,
                     T* dx, T* gradients, T* dtable, bool accumulate) const;
  // Logits of row `row`, after Forward, of the rank's part of the vocabulary
  // (FindVocabulary); good until the workspace is used.
  const T* Logits(Workspace<T>& work, const T* table, int64_t rows, int64_t row,
                  void* saved) const;

 private:
  NormState<T> Open(void* saved, int64_t rows) const;
  // The logits of `rows` rows of `normed` in the workspace's buffer.
  void Project(Workspace<T>& work, const T* table, int64_t rows,
               const T* normed) const;
  // What the softmax of all of the vocabulary needs of such logits, and their
  // losses.
  void Normalize(Workspace<T>& work, int64_t rows, const int32_t* targets,
                 T* losses) const;
  // Of rows [begin, begin + rows), losses and the gradient of the logits.
  void BackwardLogits(Workspace<T>& work, int64_t rows, T scale,
                      const int32_t* targets, T* losses) const;

  const ModelConfig config_;
  const UnitSlice slice_;
  const Range vocabulary_;  // The ids that are this rank's.
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
