// What the units of a model share on one rank: its operations, constants, and
// the scratch that one call needs while it runs.
//
// Nothing here outlives a call of a unit, but the rotary table: what the
// backward pass needs is kept in buffers of the caller (model/units.h).
// Thread-compatible.
//
// With it, units reach the ranks that they share the model with. Their calls
// return nothing: the first error of a group is kept here, and from then on
// units do nothing and leave their outputs as they are.
//
// Letters as in model_config.h, for this rank: R = B T rows with T the length
// of its part of a sequence, R' = R / tp of them in the residual stream, Q, F
// and V its part of them; S the rows that its experts take at most.

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
#include "worker/engine/tensor/tensor_view.h"

namespace atl::engine {

// With whom a rank shares a model (model/unit_slice.h); null: with nobody. Each
// is a stream of its own that nothing else uses while a unit's call runs.
struct UnitGroups {
  collective::Collective* tp = nullptr;
  collective::Collective* cp = nullptr;
  collective::Collective* ep = nullptr;
};

// Rows of a sequence that one expert takes at most: expert_capacity_factor;
// sequence_length_max if it takes all.
int64_t ExpertCapacity(const ModelConfig& config);

// S: rows that the experts of a rank take at most, where each of its ep group
// has `rows`, with ep > 1 of sequences of sequence_length_max.
int64_t ExpertRowsMax(const ModelConfig& config, const UnitSlice& slice,
                      int64_t rows);

// Instantiated for float and double.
template <typename T>
class Workspace {
 public:
  // Scratch for up to `rows_max` rows R. `config` must pass ValidateModelConfig
  // and ValidateSlice; `ops` and the groups must outlive the workspace.
  //
  // INVALID_ARGUMENT: a group has not the size and rank that the slice says.
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<Workspace>> Create(
      const ModelConfig& config, const UnitSlice& slice,
      const UnitGroups& groups, int64_t rows_max, BasicOps<T>& ops);
  // Of one rank.
  static absl::StatusOr<std::unique_ptr<Workspace>> Create(
      const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops) {
    return Create(config, UnitSlice{}, UnitGroups{}, rows_max, ops);
  }

  // The first error of a group.
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  // Keeps `status` if it is the first that is not OK.
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
  TensorView<T> part_gradient;    // [R, max(C / tp, F)], of a mixture [S, ..]
  T* normed = nullptr;            // [R', C], where it is not kept
  T* activated = nullptr;         // [R, F] or [S, F], the same
  T* gain_gradient = nullptr;     // [C], of one call
  T* bias_gradient = nullptr;     // [C], of one call
  TensorView<T> logits;           // A run of rows, [., V]
  T* losses = nullptr;            // [R]

  // With tp alone: whole rows of what the stream has in parts.
  TensorView<T> gathered;           // [R, C], what products take
  TensorView<T> gathered_gradient;  // [R, C]
  TensorView<T> partial;            // [R, C], a product before it is reduced
  T* norm_gradients = nullptr;      // [4, C], of a unit, before they are summed
  T* logit_tops = nullptr;          // [R]
  T* logit_sums = nullptr;          // [2, R], sums, then the targets' logits

  // With cp alone.
  T* positions = nullptr;  // [T, C], learned ones of this rank, or gradients
  T* local_rope_table = nullptr;        // [T, D], of this rank's positions
  int64_t local_rope_table_length = 0;  // The T that it is for.
  T* keys_values[2] = {};               // [R, 2 G D] each: held, and arriving
  T* kv_gradients[3] = {};  // The same: held, arriving, and of a call

  // Of a mixture.
  TensorView<T> expert_gradient;  // [S, C]
  TensorView<T> choice_gradient;  // [R, K]
  TensorView<T> router_gradient;  // [R, E]
  T* balance = nullptr;           // [E]
  TensorView<T> row_gradient;     // [R', C]
  // The same with ep alone.
  TensorView<T> slot_rows;     // [R K, C]
  TensorView<T> expert_rows;   // [S, C]
  T* expert_counts = nullptr;  // [2, E], sent and received
  // The same with cp and a capacity alone: choices of this rank's runs of
  // sequences, then those of all cp ranks.
  T* run_counts = nullptr;      // [1 + cp, N, E]
  int64_t run_count_max = 0;    // N: two a sequence.

  // Where the host keeps `count` numbers that belong to `saved`, a place in
  // memory of the operations: there, or with a device in a buffer of its own.
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
  // Says what buffers there are; run first to measure, then to take them.
  void TakeBuffers(Arena& arena);
  void TakeSliceBuffers(Arena& arena);
  void TakeMixtureBuffers(Arena& arena);
  void FillRopeTable();
  // Rows of logits that are alive at a time.
  int64_t LogitRowsMax() const;

  absl::Status status_;
  Arena arena_;
  std::unordered_map<const int64_t*, std::vector<int64_t>> host_numbers_;
};

extern template class Workspace<float>;
extern template class Workspace<double>;

}  // namespace atl::engine
