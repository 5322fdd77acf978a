// The Llama decoder: explicit forward and backward pass over an Ops.
//
// Parameters and gradients are flat buffers in the order of ParameterLayout.
// Activations live in one arena, made by Create. Thread-compatible.
//
// Letters as in model_config.h; Q = C + 2 G D, the columns of q, k, v. With x_0
// the embedding of the tokens, for each layer:
//
//   qkv = rope(rmsnorm(x) [Wq; Wk; Wv]^T)       x = x + attention(qkv) Wo^T
//   gate_up = rmsnorm(x) [Wgate; Wup]^T         x = x + (silu(gate) up) Wdown^T
//
// and logits = rmsnorm(x) Whead^T, where Whead is the embedding if it is tied.

#ifndef WORKER_ENGINE_MODEL_DECODER_H_
#define WORKER_ENGINE_MODEL_DECODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"
#include "worker/engine/tensor/tensor_view.h"

namespace atl::engine {

// Tokens of B sequences of T: `inputs` and `targets` have shape [B, T], ids in
// [0, V).
struct TokenBatch {
  int64_t batch = 0;            // B
  int64_t sequence_length = 0;  // T
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;

  int64_t rows() const { return batch * sequence_length; }
};

// Instantiated for float, and for double to check gradients.
template <typename T>
class Decoder {
 public:
  // Buffers for batches of up to `rows_max` tokens in sequences of up to
  // config.sequence_length_max. `ops` must outlive the decoder; `config` must
  // pass ValidateModelConfig.
  //
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops);

  const ParameterLayout& layout() const { return layout_; }

  // Mean loss in nats a token, and its gradient in all of `gradients`.
  // Requires 1 <= rows() <= rows_max and T <= sequence_length_max.
  T ForwardBackward(const T* parameters, const TokenBatch& batch, T* gradients);

  // Mean loss alone.
  T Loss(const T* parameters, const TokenBatch& batch);

  // Logits [V] at `position` of one sequence of `length` tokens; the pointer is
  // good until the next call. The whole sequence is computed each time.
  const T* Logits(const T* parameters, const int32_t* tokens, int64_t length,
                  int64_t position);

 private:
  // Offsets of a layer's parameters in the flat buffers.
  struct LayerOffsets {
    int64_t qkv, o, gate_up, down, attention_norm, mlp_norm;
  };
  // A norm's input, output and 1 / rms, kept for the backward pass.
  struct NormState {
    TensorView<T> sum, normed;  // [R, C]
    T* rstd = nullptr;          // [R]
  };
  struct LayerState {
    NormState attention_norm, mlp_norm;
    TensorView<T> qkv;        // [R, Q], rotated; its gradient is apart
    TensorView<T> attention;  // [R, C]
    T* log_sum = nullptr;     // [B, H, T]
    TensorView<T> gate_up;    // [R, 2 F]; backward puts the gradient there
    TensorView<T> swiglu;     // [R, F]
  };

  Decoder(const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops);
  // Says what buffers there are; run first to measure, then to take them.
  void TakeBuffers(Arena& arena);
  void TakeNorm(Arena& arena, NormState& norm);
  void FillRopeTable();
  // Rows of logits that are alive at a time.
  int64_t LogitRowsMax() const;

  AttentionShape ShapeOf(const TokenBatch& batch) const;
  // Up to and with the last norm.
  void Forward(const T* parameters, const TokenBatch& batch);
  void ForwardLayer(const T* parameters, const TokenBatch& batch,
                    int64_t layer);
  // x + delta of the norm before, normed by `gain`.
  void ForwardNorm(int64_t rows, const NormState* before, const T* gain,
                   NormState& norm);
  // From the last norm to the losses; with `gradients` also the gradient of the
  // head, and of the last norm's output in normed_gradient_.
  T Head(const T* parameters, const TokenBatch& batch, T* gradients);
  void Backward(const T* parameters, const TokenBatch& batch, T* gradients);
  void BackwardMlp(const T* parameters, int64_t rows, int64_t layer,
                   T* gradients);
  void BackwardAttention(const T* parameters, const TokenBatch& batch,
                         int64_t layer, T* gradients);

  const ModelConfig config_;
  const ParameterLayout layout_;
  const int64_t rows_max_;
  BasicOps<T>& ops_;

  int64_t embedding_offset_ = 0;
  int64_t last_norm_offset_ = 0;
  int64_t head_offset_ = 0;  // The embedding's if tied.
  std::vector<LayerOffsets> offsets_;

  Arena arena_;
  T* rope_table_ = nullptr;  // [sequence_length_max, D]
  std::vector<LayerState> layers_;
  NormState last_norm_;
  TensorView<T> delta_;              // [R, C], what a block adds to x
  TensorView<T> logits_;             // [LogitRowsMax(), V]
  T* losses_ = nullptr;              // [R]
  TensorView<T> residual_gradient_;  // [R, C]
  TensorView<T> normed_gradient_;    // [R, C]
  TensorView<T> qkv_gradient_;       // [R, Q]
  TensorView<T> block_gradient_;     // [R, max(C, F)]
};

extern template class Decoder<float>;
extern template class Decoder<double>;

}  // namespace atl::engine

#endif  // WORKER_ENGINE_MODEL_DECODER_H_
