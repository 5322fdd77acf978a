// The units of a rank's stages, and what they keep between the passes of
// micro-batches that are under way.
//
// Thread-compatible. Makes no object after Create. Parameters and gradients are
// the caller's, unit by unit (units of RankLayout, by their place there). All
// buffers, and the tokens of a batch, lie in memory of the operations.
//
// A message between stages is the residual stream [stream_rows, C], then, of a
// mixture, the sums over layers of its routers (RouterTotals): counts [E] and
// sums [E]. On the way forward they grow; on the way back they are those of all
// layers, and the stream is its gradient.
//
//   forward   Open, (receive into input(), Received), ForwardUnit of each unit,
//             Close if no backward pass follows
//   backward  (receive the gradient, ReceivedGradient), BackwardUnit of each
//             unit, the last first, Close

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

// Instantiated for float and double.
template <typename T>
class StageModel {
 public:
  // `rows_max` tokens a micro-batch, as TokenBatch counts them.
  // `flight_counts`, by chunk: micro-batches that are under way at a time at
  // most. All references and groups outlive it.
  //
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<StageModel>> Create(
      const ModelConfig& config, const RankLayout& rank_layout,
      ActivationCheckpointing checkpointing, const UnitGroups& groups,
      int64_t rows_max, std::vector<int> flight_counts, BasicOps<T>& ops);

  // Elements of a message of `batch`.
  int64_t message_count(const TokenBatch& batch) const;

  // The first error of a group that units talk in; they do nothing after it.
  const absl::Status& status() const { return work_->status(); }

  // The share of a micro-batch in a step's router loss, and its tokens on all
  // ranks that read other parts of it.
  struct RouterShare {
    double scale = 1;
    int64_t rows = 0;
  };
  // Begins the passes of `micro_batch` through `chunk`.
  void Open(int chunk, int micro_batch, const TokenBatch& batch,
            const RouterShare& share);
  void Close(int chunk, int micro_batch);

  // Where the message from the stage before goes, and that it is there.
  T* input(int chunk, int micro_batch);
  void Received(int chunk, int micro_batch);

  // What a pass of a unit works on.
  struct Pass {
    int chunk = 0;
    int micro_batch = 0;
    int unit = 0;
    const T* parameters = nullptr;
    const T* table = nullptr;  // The span of the table's unit; the head's only.
  };
  // `message` receives the output of the chunk's last unit.
  void ForwardUnit(const Pass& pass, T* message);

  struct Gradients {
    T* data = nullptr;
    bool accumulate = false;
  };
  // The gradient of the chunk's output is in `message`, and becomes that of its
  // input; the head writes it. `table`: of the table's unit; the head's only.
  void BackwardUnit(const Pass& pass, T* message, const Gradients& gradients,
                    const Gradients& table);
  // `message` came from the stage behind.
  void ReceivedGradient(int chunk, int micro_batch, const T* message);
  // Writes the router's totals behind the gradient.
  void CompleteGradient(int chunk, int micro_batch, T* message) const;

  // After the forward pass of the head: the sum of losses in nats, times
  // `scale` (and its gradient with BackwardUnit, which returns nothing: the sum
  // is kept here until the next).
  double Loss(const Pass& pass);
  void set_loss_scale(T scale) { loss_scale_ = scale; }
  double last_loss() const { return last_loss_; }
  // Logits of row `row`, of the rank's part of the vocabulary; good until the
  // next call.
  const T* Logits(const Pass& pass, int64_t row);

  // The totals of the micro-batch, [2 E], once all layers were passed: to be
  // summed over the ranks that read other parts of it. Empty without experts.
  absl::Span<T> router_totals(int chunk, int micro_batch);
  // The loss that balances experts, of these sums, times its weight and the
  // micro-batch's share; 0 without experts.
  double RouterLoss(int chunk, int micro_batch);

  // Of what is kept between passes.
  int64_t activation_bytes() const {
    return static_cast<int64_t>(arena_.used_bytes());
  }

 private:
  // One micro-batch on its way through a chunk.
  struct Flight {
    int micro_batch = -1;  // -1: free.
    TokenBatch batch;
    std::vector<T*> inputs;    // By unit of the chunk; none of an embedding.
    std::vector<void*> saved;  // By unit of the chunk.
    RouterTotals<T> totals;
  };

  StageModel(const ModelConfig& config, const RankLayout& rank_layout,
             ActivationCheckpointing checkpointing,
             std::unique_ptr<Workspace<T>> work,
             const std::vector<int>& flight_counts);
  // Says what buffers there are; run first to measure, then to take them.
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
  std::unique_ptr<EmbeddingUnit<T>> embedding_;  // Also for a table's offset.
  std::unique_ptr<HeadUnit<T>> head_;
  std::vector<std::unique_ptr<BlockUnit<T>>> blocks_;  // By unit of the rank.

  Arena arena_;
  std::vector<std::vector<Flight>> flights_;  // By chunk.
  // For a forward pass that is made again: what a block saves, its output,
  // which nobody reads, and totals that are added to once more.
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
