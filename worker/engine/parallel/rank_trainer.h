// One rank of a mesh: its units, its shards, its share of each step.
//
// Thread-compatible: the rank's thread makes all calls. All ranks of the mesh
// make the same calls with the same arguments. An error ends the rank: one of
// Collective or the operations, otherwise the caller must abort the world with
// it.
//
// Everything computed or exchanged is in memory of the operations, which the
// host may be unable to read. Arguments and results are in host memory.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/optimizer_options.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_groups.h"
#include "worker/engine/parallel/layout/rank_layout.h"
#include "worker/engine/parallel/layout/resharder.h"
#include "worker/engine/parallel/pipeline_links.h"
#include "worker/engine/parallel/stage_model.h"
#include "worker/engine/parallel/unit_visits.h"
#include "worker/engine/parallel/zero/shard_optimizer.h"
#include "worker/engine/parallel/zero/unit_gradients.h"
#include "worker/engine/parallel/zero/unit_parameters.h"

namespace atl::engine {

struct RankTrainerOptions {
  ModelConfig model;
  OptimizerOptions optimizer;
  MeshOptions mesh;
  int64_t batch_size = 1;       // Sequences of an island's step at most.
  int64_t sequence_length = 1;  // T
};

// Bytes that a rank has allocated, by purpose.
struct RankMemory {
  int64_t parameter_bytes = 0;  // Parameters that stay.
  int64_t gradient_bytes = 0;
  int64_t moment_bytes = 0;
  int64_t buffer_bytes = 0;  // Gathered units, and gradients in reduction.
  int64_t activation_bytes = 0;
};

template <typename T>
class RankTrainer {
 public:
  // Options must pass ValidateMeshTrainer. `layout` is the model's. `world` is
  // the rank in the mesh; it and `ops` outlive the trainer. Parameters start at
  // 0. RESOURCE_EXHAUSTED: no memory or disk. Errors of Collective.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Create(
      const RankTrainerOptions& options, const ParameterLayout& layout,
      collective::Collective& world, BasicOps<T>& ops);

  // The island's result, the same on all ranks.
  struct StepResult {
    double loss = 0;  // Mean, in nats per token.
    double gradient_norm = 0;
    double router_loss = 0;
    // False: loss or norm is not finite, and nothing was updated.
    bool is_finite = true;
  };
  // One step on the island's `inputs` and `targets`, [n, T], n a multiple of
  // ranks of kBatchGroup times micro-batches.
  absl::StatusOr<StepResult> Step(const int32_t* inputs, const int32_t* targets,
                                  int64_t sequence_count, double learning_rate);

  // Mean loss of any n >= 1 sequences, in nats per token.
  absl::StatusOr<double> EvaluateLoss(const int32_t* inputs,
                                      const int32_t* targets,
                                      int64_t sequence_count);

  // Logits [V] at `position` of a sequence of T tokens, until the next call.
  absl::StatusOr<const T*> Logits(const int32_t* tokens, int64_t position);

  // The rank's held part of the model (reshard_plan.h), of the size of `held`.
  const ParameterSpan& held() const { return resharder_->held(); }
  // Moves `elements` of it; nullopt: all.
  using Elements = typename Resharder<T>::Elements;
  absl::Status ScatterParameters(const T* held, const Elements& elements = {});
  absl::Status GatherParameters(T* held, const Elements& elements = {});
  // The same for m (`moment` 0) or v (1). Not with SGD.
  absl::Status ScatterMoment(int moment, const T* held);
  absl::Status GatherMoment(int moment, T* held);

  int64_t step_count() const { return optimizer_->step_count(); }
  void set_step_count(int64_t step_count) {
    optimizer_->set_step_count(step_count);
  }
  absl::Status ResetOptimizer() { return optimizer_->Reset(); }

  RankMemory memory() const;

 private:
  RankTrainer(const RankTrainerOptions& options, collective::Collective& world,
              BasicOps<T>& ops);
  absl::Status Init(const ParameterLayout& layout);
  absl::Status InitShards();
  absl::Status InitBuffers(int64_t rows);

  struct Passes {
    absl::Span<const PipelineAction> actions;
    absl::Span<const UnitVisit> visits;
    std::vector<TokenBatch> batches;  // By micro-batch.
    typename StageModel<T>::RouterShare router;
    bool makes_loss = false;  // The head's forward pass computes the loss.
    int64_t logits_row = -1;  // If not -1, it computes the logits of this row.
    // Results, on the head's rank.
    double loss = 0;
    double router_loss = 0;
    const T* logits = nullptr;  // Logits of this rank's part of the vocabulary.
  };
  absl::Status Run(Passes& passes);
  absl::Status RunAction(const PipelineAction& action, Passes& passes);
  absl::Status RunForward(const PipelineAction& action, Passes& passes);
  absl::Status RunBackward(const PipelineAction& action, Passes& passes);
  // Gathers the next visit's parameters and prefetches later ones.
  absl::StatusOr<typename StageModel<T>::Pass> BeginVisit(
      const PipelineAction& action, const Passes& passes);
  void EndVisit(const Passes& passes);

  // This rank's part of `count` sequences from `first`, as micro-batch
  // `micro_batch`. `targets` may be null.
  TokenBatch BatchAt(const int32_t* inputs, const int32_t* targets,
                     int64_t first, int64_t count, int micro_batch);
  absl::Status RunForwards(Passes& passes);
  // Sums a micro-batch's router totals over ranks, after its last layer.
  absl::Status SumRouters(const PipelineAction& action, Passes& passes);
  // Sums `values`, at most 3, over the world.
  absl::Status SumOverWorld(absl::Span<double> values);
  // After the host waited for the device: calls of ranks have ended only now.
  absl::Status HostStatus() const;
  T* Shard(UnitParameters<T>& of, const ReshardPlan::Run& run) {
    return of.shard(run.span) + run.offset;
  }

  const RankTrainerOptions options_;
  const RankLayout layout_;
  collective::Collective& world_;
  BasicOps<T>& ops_;
  const int batch_ranks_;  // D
  const int batch_rank_;
  // This rank counts its tokens' losses: it is the first of its tp group.
  const bool counts_loss_;
  std::vector<PipelineAction> actions_, forward_actions_;
  std::vector<UnitVisit> visits_, loss_visits_;

  RankGroups groups_;
  std::unique_ptr<UnitParameters<T>> parameters_;
  std::unique_ptr<UnitGradients<T>> gradients_;
  std::unique_ptr<ShardOptimizer<T>> optimizer_;
  std::unique_ptr<StageModel<T>> model_;
  std::unique_ptr<Resharder<T>> resharder_;
  PipelineSender<T> forward_out_, backward_out_;
  Arena arena_;
  T* logits_ = nullptr;     // [V]
  double* sums_ = nullptr;  // [3], over the world
  // A rank's parts of sequences, by micro-batch, [rows] each.
  std::vector<int32_t*> inputs_, targets_;
  std::vector<T> host_logits_;
  size_t next_visit_ = 0;  // Next index in visits of the running passes.
};

extern template class RankTrainer<float>;
extern template class RankTrainer<double>;

}  // namespace atl::engine
