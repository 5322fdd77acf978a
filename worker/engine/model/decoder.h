// A whole decoder on one rank. Parameters and gradients are flat buffers in the
// order of ParameterLayout, in the memory of the operations. Tokens and results
// are in host memory. Activations are in one arena. Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/units.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// Instantiated for float, and for double to check gradients.
template <typename T>
class Decoder {
 public:
  // Allocates buffers for up to `rows_max` tokens, in sequences of up to
  // config.sequence_length_max. `ops` must outlive the decoder. `config` must
  // pass ValidateModelConfig. RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops);

  const ParameterLayout& layout() const { return layout_; }

  // Returns the mean loss in nats per token. Writes all of `gradients`: the
  // gradient of that mean plus router_loss(). Requires 1 <= rows() <= rows_max
  // and T <= sequence_length_max.
  T ForwardBackward(const T* parameters, const TokenBatch& batch, T* gradients);

  // ForwardBackward in parts, for a step that is queued and read later. Fetch
  // copies the tokens to a fixed address for the operations, valid until the
  // decoder's next call. QueueForwardBackward writes the losses of the batch's
  // rows() to losses(). With a mixture it waits for the experts' row counts.
  TokenBatch Fetch(const TokenBatch& batch);
  void QueueForwardBackward(const T* parameters, const TokenBatch& fetched,
                            T* gradients);
  const T* losses() const { return work_->losses; }

  // Mean loss alone.
  T Loss(const T* parameters, const TokenBatch& batch);

  // config.router_loss_weight times the load-balancing loss of the last
  // ForwardBackward or Loss; 0 without experts.
  double router_loss() const { return router_loss_; }

  // Logits [V] at `position` of one sequence of `length` tokens, valid until
  // the next call. Computes the whole sequence.
  const T* Logits(const T* parameters, const int32_t* tokens, int64_t length,
                  int64_t position);

 private:
  Decoder(const ModelConfig& config, std::unique_ptr<Workspace<T>> workspace);
  // Runs twice: once to measure, once to allocate.
  void TakeBuffers(Arena& arena);
  // Includes the last norm.
  void Forward(const T* parameters, const TokenBatch& batch);
  void SetRouterLoss(int64_t rows);
  int64_t TableOffset() const;

  const ModelConfig config_;
  const ParameterLayout layout_;
  const std::unique_ptr<Workspace<T>> work_;
  const EmbeddingUnit<T> embedding_;
  std::vector<BlockUnit<T>> blocks_;
  const HeadUnit<T> head_;

  Arena arena_;
  std::vector<T*> streams_;   // [R, C]: before each block, then after the last.
  std::vector<void*> saved_;  // One for each block, then the head's.
  RouterTotals<T> totals_;
  T* stream_gradient_ = nullptr;  // [R, C]
  int32_t* inputs_ = nullptr;     // [R]
  int32_t* targets_ = nullptr;    // [R]
  std::vector<T> host_totals_;    // [2, E]
  std::vector<T> host_logits_;    // [V]
  double router_loss_ = 0;
};

extern template class Decoder<float>;
extern template class Decoder<double>;

}  // namespace atl::engine
