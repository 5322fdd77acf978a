// The workspace that the units of a model share on one rank: operations,
// constants, and scratch for one call. Except for the rotary table, nothing
// here outlives a unit's call. Thread-compatible.
//
// Calls to other ranks return nothing: the workspace keeps the first error of a
// group. From then on units do nothing and leave their outputs unchanged.
//
// Letters are those of model_config.h, for this rank: R = B T rows, T its part
// of a sequence; R' = R / tp rows of the residual stream; Q, F and V its part;
// S the most rows that its experts take.

#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// The groups that share a model with this rank (model/unit_slice.h). Null: a
// group of one. Nothing else may use a group during a unit's call.
struct UnitGroups {
  collective::Collective* tp = nullptr;
  collective::Collective* cp = nullptr;
  collective::Collective* ep = nullptr;
};

// The most rows of a sequence that one expert takes (expert_capacity_factor);
// sequence_length_max without a capacity.
int64_t ExpertCapacity(const ModelConfig& config);

// S: the most rows that the experts of a rank take if each rank of its ep group
// has `rows`. With ep > 1 the sequences have sequence_length_max tokens.
int64_t ExpertRowsMax(const ModelConfig& config, const UnitSlice& slice,
                      int64_t rows);

template <typename T>
class Workspace {
 public:
  // Allocates scratch for up to `rows_max` rows R. `config` must pass
  // ValidateModelConfig and ValidateSlice. `ops` and the groups must outlive
  // it. INVALID_ARGUMENT: the size or rank of a group differs from the slice's.
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<Workspace>> Create(
      const ModelConfig& config, const UnitSlice& slice,
      const UnitGroups& groups, int64_t rows_max, BasicOps<T>& ops);
  static absl::StatusOr<std::unique_ptr<Workspace>> Create(
      const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops) {
    return Create(config, UnitSlice{}, UnitGroups{}, rows_max, ops);
  }

  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  // Keeps `status` if it is the first error.
  void Latch(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const ModelConfig config;
  const UnitSlice slice;
  const UnitGroups groups;
  const int64_t rows_max;
  BasicOps<T>& ops;

  // [sequence_length_max, D]; null if positions are learned.
  T* rope_table = nullptr;

  TensorView<T> delta;            // [R', C], what a part adds to the stream
  TensorView<T> normed_gradient;  // [R', C]
  TensorView<T> qkv_gradient;     // [R, Q]
  TensorView<T> part_gradient;    // [R, max(C / tp, F)], in a mixture [S, ..]
  T* normed = nullptr;            // [R', C], if a block does not keep it
  T* activated = nullptr;         // [R, F] or [S, F], the same
  T* gain_gradient = nullptr;     // [C], of one call
  T* bias_gradient = nullptr;     // [C], of one call
  TensorView<T> logits;           // A run of rows, [., V]
  T* losses = nullptr;            // [R]

  // With tp only: whole rows, of which the stream has a part.
  TensorView<T> gathered;           // [R, C], what products take
  TensorView<T> gathered_gradient;  // [R, C]
  TensorView<T> partial;            // [R, C], a product before it is reduced
  T* norm_gradients = nullptr;      // [4, C], of a unit, before the sum over tp
  T* logit_tops = nullptr;          // [R]
  T* logit_sums = nullptr;          // [2, R], sums, then the targets' logits

  // With cp only.
  T* positions = nullptr;  // [T, C], this rank's learned ones, or gradients
  T* local_rope_table = nullptr;        // [T, D], of this rank's positions
  int64_t local_rope_table_length = 0;  // The T of local_rope_table.
  T* keys_values[2] = {};               // [R, 2 G D] each: held, and arriving
  T* kv_gradients[3] = {};  // The same: held, arriving, and of a call

  // In a mixture only.
  TensorView<T> expert_gradient;  // [S, C]
  TensorView<T> choice_gradient;  // [R, K]
  TensorView<T> router_gradient;  // [R, E]
  T* balance = nullptr;           // [E]
  TensorView<T> row_gradient;     // [R', C]
  // In a mixture with ep only.
  TensorView<T> slot_rows;     // [R K, C]
  TensorView<T> expert_rows;   // [S, C]
  T* expert_counts = nullptr;  // [2, E], sent and received
  // In a mixture with cp and a capacity only: expert choices of this rank's
  // runs of sequences, then those of all cp ranks.
  T* run_counts = nullptr;      // [1 + cp, N, E]
  int64_t run_count_max = 0;    // N: two per sequence.

  // Host memory for `count` numbers that belong to `saved` in the operations'
  // memory: `saved` itself, or its own buffer with a device.
  int64_t* OnHost(int64_t* saved, int64_t count) {
    if (ops.memory().is_host()) return saved;
    std::vector<int64_t>& numbers = host_numbers_[saved];
    numbers.resize(static_cast<size_t>(count));
    return numbers.data();
  }

 private:
  Workspace(const ModelConfig& config, const UnitSlice& slice,
            const UnitGroups& groups, int64_t rows_max, BasicOps<T>& ops)
      : config(config),
        slice(slice),
        groups(groups),
        rows_max(rows_max),
        ops(ops) {}
  absl::Status CheckGroups() const;
  // Runs twice: once to measure, once to allocate.
  void TakeBuffers(Arena& arena);
  void TakeSliceBuffers(Arena& arena);
  void TakeMixtureBuffers(Arena& arena);
  void FillRopeTable();
  // Rows of logits that exist at a time.
  int64_t LogitRowsMax() const;

  absl::Status status_;
  Arena arena_;
  std::unordered_map<const int64_t*, std::vector<int64_t>> host_numbers_;
};

extern template class Workspace<float>;
extern template class Workspace<double>;

}  // namespace atl::engine
