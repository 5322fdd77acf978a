// The units of a rank's stages, and the activations of micro-batches in
// progress. Thread-compatible. Allocates nothing after Create. The caller
// passes parameters and gradients unit by unit (RankLayout::units). All
// buffers, and the tokens of a batch, are in memory of the operations.
//
// A message between stages is the residual stream [stream_rows, C]. With a
// mixture, RouterTotals follow: counts [E] and sums [E] over layers. A forward
// message has those of the layers so far, a backward message those of all
// layers and the stream's gradient.
//
//   forward   Open, (receive into input(), Received), ForwardUnit of each unit,
//             Close if no backward pass follows
//   backward  (receive the gradient, ReceivedGradient), BackwardUnit of each
//             unit in reverse order, Close

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/units.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_layout.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

template <typename T>
class StageModel {
 public:
  // `rows_max` tokens per micro-batch, as TokenBatch counts them.
  // `flight_counts`, by chunk: the most micro-batches in progress at a time.
  // All references outlive it. RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<StageModel>> Create(
      const ModelConfig& config, const RankLayout& rank_layout,
      ActivationCheckpointing checkpointing, const UnitGroups& groups,
      int64_t rows_max, std::vector<int> flight_counts, BasicOps<T>& ops);

  // Elements of a message of `batch`.
  int64_t message_count(const TokenBatch& batch) const;

  // The first error of a group of the units. After it, units do nothing.
  const absl::Status& status() const { return work_->status(); }

  // A micro-batch's share of the router loss, and its tokens on all ranks.
  struct RouterShare {
    double scale = 1;
    int64_t rows = 0;
  };
  // Starts the passes of `micro_batch` through `chunk`.
  void Open(int chunk, int micro_batch, const TokenBatch& batch,
            const RouterShare& share);
  void Close(int chunk, int micro_batch);

  // The previous stage's message goes there; Received tells that it arrived.
  T* input(int chunk, int micro_batch);
  void Received(int chunk, int micro_batch);

  struct Pass {
    int chunk = 0;
    int micro_batch = 0;
    int unit = 0;
    const T* parameters = nullptr;
    const T* table = nullptr;  // The head's only: the table's unit.
  };
  // `message` receives the output of the chunk's last unit.
  void ForwardUnit(const Pass& pass, T* message);

  struct Gradients {
    T* data = nullptr;
    bool accumulate = false;
  };
  // `message` holds the gradient of the chunk's output, and receives that of
  // its input. `table`: of the table's unit. The head only writes `message`,
  // and only the head uses `table`.
  void BackwardUnit(const Pass& pass, T* message, const Gradients& gradients,
                    const Gradients& table);
  // `message` arrived from the next stage.
  void ReceivedGradient(int chunk, int micro_batch, const T* message);
  // Writes the router totals after the gradient.
  void CompleteGradient(int chunk, int micro_batch, T* message) const;

  // Sum of losses in nats, after the head's forward pass. BackwardUnit of the
  // head leaves it in last_loss(); the loss scale multiplies only the gradient.
  double Loss(const Pass& pass);
  void set_loss_scale(T scale) { loss_scale_ = scale; }
  double last_loss() const { return last_loss_; }
  // Logits of row `row`, of the rank's ids; valid until the next call.
  const T* Logits(const Pass& pass, int64_t row);

  // The totals [2 E] of the micro-batch after all layers, which the caller sums
  // over the ranks that share it. Empty without experts.
  absl::Span<T> router_totals(int chunk, int micro_batch);
  // The load-balancing loss of these sums, times its weight and the
  // micro-batch's share; 0 without experts.
  double RouterLoss(int chunk, int micro_batch);

  // Memory of activations and buffers.
  int64_t activation_bytes() const {
    return static_cast<int64_t>(arena_.used_bytes());
  }

 private:
  struct Flight {
    int micro_batch = -1;  // -1: free.
    TokenBatch batch;
    std::vector<T*> inputs;    // By unit of the chunk; null for an embedding.
    std::vector<void*> saved;  // By unit of the chunk.
    RouterTotals<T> totals;
  };

  StageModel(const ModelConfig& config, const RankLayout& rank_layout,
             ActivationCheckpointing checkpointing,
             std::unique_ptr<Workspace<T>> work,
             const std::vector<int>& flight_counts);
  // Runs twice: once to measure, once to allocate.
  void TakeBuffers(Arena& arena);
  // Elements of the residual stream of `batch` on this rank.
  int64_t StreamCount(const TokenBatch& batch) const;
  Flight& FindFlight(int chunk, int micro_batch);
  const Flight& FindFlight(int chunk, int micro_batch) const;
  const T* FindTable(const Pass& pass) const;
  void BackwardHead(const Pass& pass, Flight& flight, T* message,
                    const Gradients& gradients, const Gradients& table);

  const ModelConfig config_;
  const RankLayout& rank_layout_;
  const ActivationCheckpointing checkpointing_;
  const std::unique_ptr<Workspace<T>> work_;
  std::unique_ptr<EmbeddingUnit<T>> embedding_;  // Also gives a table's offset.
  std::unique_ptr<HeadUnit<T>> head_;
  std::vector<std::unique_ptr<BlockUnit<T>>> blocks_;  // By unit of the rank.

  Arena arena_;
  std::vector<std::vector<Flight>> flights_;  // By chunk.
  // For a recomputed forward pass: a block's saved buffer, its output, which is
  // not read, and totals, which are already counted.
  void* again_saved_ = nullptr;
  T* again_out_ = nullptr;
  RouterTotals<T> again_totals_;
  std::vector<T> host_totals_;  // [2 E], for RouterLoss
  T loss_scale_ = 1;
  double last_loss_ = 0;
};

extern template class StageModel<float>;
extern template class StageModel<double>;

}  // namespace atl::engine
