// What the units of a model share on one rank: its operations, constants, and
// the scratch that one call needs while it runs.
//
// Nothing here outlives a call of a unit, but the rotary table: what the
// backward pass needs is kept in buffers of the caller (model/units.h).
// Thread-compatible.
//
// Letters as in model_config.h; S = R K, the choices of a mixture.

#ifndef WORKER_ENGINE_MODEL_WORKSPACE_H_
#define WORKER_ENGINE_MODEL_WORKSPACE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"
#include "worker/engine/tensor/tensor_view.h"

namespace atl::engine {

// Instantiated for float and double.
template <typename T>
class Workspace {
 public:
  // Scratch for up to `rows_max` rows. `config` must pass ValidateModelConfig;
  // `ops` must outlive the workspace.
  //
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<Workspace>> Create(
      const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops);

  const ModelConfig config;
  const int64_t rows_max;
  BasicOps<T>& ops;

  // [sequence_length_max, D]; null if positions are learned.
  T* rope_table = nullptr;

  TensorView<T> delta;            // [R, C], what a part adds to the stream
  TensorView<T> normed_gradient;  // [R, C]
  TensorView<T> qkv_gradient;     // [R, Q]
  TensorView<T> part_gradient;    // [R, max(C, F)], or [S, F] of a mixture
  T* gain_gradient = nullptr;     // [C], of one call
  T* bias_gradient = nullptr;     // [C], of one call
  TensorView<T> logits;           // A run of rows, [., V]
  T* losses = nullptr;            // [R]

  // Of a mixture.
  TensorView<T> expert_gradient;  // [S, C]
  TensorView<T> choice_gradient;  // [R, K]
  TensorView<T> router_gradient;  // [R, E]
  T* balance = nullptr;           // [E]
  TensorView<T> row_gradient;     // [R, C]
  // [E + 1], in the host's memory: what PlanDispatch said of one call.
  std::vector<int64_t> slot_begins;

 private:
  Workspace(const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops)
      : config(config), rows_max(rows_max), ops(ops) {}
  // Says what buffers there are; run first to measure, then to take them.
  void TakeBuffers(Arena& arena);
  void FillRopeTable();
  // Rows of logits that are alive at a time.
  int64_t LogitRowsMax() const;

  Arena arena_;
};

extern template class Workspace<float>;
extern template class Workspace<double>;

}  // namespace atl::engine

#endif  // WORKER_ENGINE_MODEL_WORKSPACE_H_
