#include "worker/engine/parallel/zero/shard_optimizer.h"

#include <algorithm>

#include "base/status/status_macros.h"
#include "worker/engine/optimizer/update_rule.h"
#include "worker/engine/parallel/zero/backing_store.h"

namespace atl::engine {
namespace {

// Chunk of offloaded moments: 1 MiB of m in f32.
constexpr int64_t kChunkElements = int64_t{1} << 18;

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<ShardOptimizer<T>>> ShardOptimizer<T>::Create(
    const OptimizerOptions& options, const MeshOptions& mesh,
    const RankLayout& layout, std::vector<StateSegment> segments,
    BasicOps<T>& ops) {
  std::unique_ptr<ShardOptimizer> optimizer(
      new ShardOptimizer(options, layout, std::move(segments), ops));
  if (options.kind == OptimizerKind::kSgd) return optimizer;
  if (mesh.optimizer_directory.empty() && !mesh.optimizer_on_host) {
    ASSIGN_OR_RETURN(optimizer->moments_,
                     MakeMomentStore<T>(layout.state_count, ops));
    return optimizer;
  }
  const int64_t bytes =
      2 * layout.state_count * static_cast<int64_t>(sizeof(T));
  ASSIGN_OR_RETURN(std::unique_ptr<BackingStore> store,
                   mesh.optimizer_directory.empty()
                       ? MakeMemoryStore(bytes)
                       : MakeFileStore(mesh.optimizer_directory, bytes));
  ASSIGN_OR_RETURN(optimizer->moments_, MakeOffloadedMomentStore<T>(
                                            layout.state_count, kChunkElements,
                                            std::move(store), ops));
  return optimizer;
}

template <typename T>
double ShardOptimizer<T>::SumOfSquares(ShardOf gradients) const {
  double sum = 0;
  for (const StateSegment& segment : segments_) {
    if (!segment.is_counted) continue;
    sum += ops_.SumOfSquares(segment.count,
                             gradients(segment.span) + segment.shard_offset);
  }
  return sum;
}

template <typename T>
absl::Status ShardOptimizer<T>::Step(double learning_rate, double norm,
                                     ShardOf gradients, ShardOf parameters) {
  const double scale = ClipFactor(options_, norm);
  ++step_count_;
  if (options_.kind == OptimizerKind::kSgd) {
    for (const StateSegment& segment : segments_) {
      ops_.Sgd(segment.count, static_cast<T>(learning_rate),
               static_cast<T>(scale),
               gradients(segment.span) + segment.shard_offset,
               parameters(segment.span) + segment.shard_offset);
    }
    return absl::OkStatus();
  }
  const AdamWStep<T> step =
      AdamWStepAt<T>(options_, step_count_, learning_rate, scale);
  return moments_->Update([&](const typename MomentStore<T>::Chunk& chunk) {
    for (const StateSegment& segment : segments_) {
      StepSegment(segment, step, chunk, gradients, parameters);
    }
  });
}

template <typename T>
void ShardOptimizer<T>::StepSegment(const StateSegment& segment,
                                    const AdamWStep<T>& step,
                                    const typename MomentStore<T>::Chunk& chunk,
                                    ShardOf gradients, ShardOf parameters) {
  const int64_t state =
      layout_.spans[segment.span].state_begin + segment.shard_offset;
  const int64_t begin = std::max(state, chunk.begin);
  const int64_t end =
      std::min(state + segment.count, chunk.begin + chunk.count);
  if (begin >= end) return;
  const int64_t at = segment.shard_offset + (begin - state);
  ops_.AdamW(end - begin, step, gradients(segment.span) + at,
             parameters(segment.span) + at, chunk.first + (begin - chunk.begin),
             chunk.second + (begin - chunk.begin));
}

template <typename T>
absl::Status ShardOptimizer<T>::Reset() {
  step_count_ = 0;
  if (moments_ == nullptr) return absl::OkStatus();
  return moments_->Update([this](const typename MomentStore<T>::Chunk& chunk) {
    ops_.SetZero(chunk.count, chunk.first);
    ops_.SetZero(chunk.count, chunk.second);
  });
}

template class ShardOptimizer<float>;
template class ShardOptimizer<double>;

}  // namespace atl::engine
