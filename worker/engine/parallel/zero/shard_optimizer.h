// The inner optimizer of a rank's shards, chunk by chunk of moments. It updates
// an element as InnerOptimizer does. Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/optimizer/optimizer_options.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_layout.h"
#include "worker/engine/parallel/zero/moment_store.h"

namespace atl::engine {

template <typename T>
class ShardOptimizer {
 public:
  // Starts fresh. Moments are in memory of `ops`, or where `mesh` says.
  // `layout` and `ops` outlive it; `segments` are the layout's. Errors of
  // MakeMomentStore and MakeFileStore.
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Create(
      const OptimizerOptions& options, const MeshOptions& mesh,
      const RankLayout& layout, std::vector<StateSegment> segments,
      BasicOps<T>& ops);

  // Sum of squares over the elements that this rank counts.
  using ShardOf = absl::FunctionRef<T*(int span)>;
  double SumOfSquares(ShardOf gradients) const;

  // One step. `norm` is the gradient's, over the mesh.
  absl::Status Step(double learning_rate, double norm, ShardOf gradients,
                    ShardOf parameters);

  // Null for SGD.
  MomentStore<T>* moments() { return moments_.get(); }
  int64_t step_count() const { return step_count_; }
  void set_step_count(int64_t step_count) { step_count_ = step_count; }
  absl::Status Reset();

 private:
  ShardOptimizer(const OptimizerOptions& options, const RankLayout& layout,
                 std::vector<StateSegment> segments, BasicOps<T>& ops)
      : options_(options),
        layout_(layout),
        segments_(std::move(segments)),
        ops_(ops) {}

  // AdamW on the elements of `segment` in `chunk`.
  void StepSegment(const StateSegment& segment, const AdamWStep<T>& step,
                   const typename MomentStore<T>::Chunk& chunk,
                   ShardOf gradients, ShardOf parameters);

  const OptimizerOptions options_;
  const RankLayout& layout_;
  const std::vector<StateSegment> segments_;
  BasicOps<T>& ops_;
  std::unique_ptr<MomentStore<T>> moments_;
  int64_t step_count_ = 0;
};

extern template class ShardOptimizer<float>;
extern template class ShardOptimizer<double>;

}  // namespace atl::engine
