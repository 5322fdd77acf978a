// Sends rows to experts on other ranks, and back.
//
// A rank's slots sort its rows by expert (Ops::PlanDispatch), and therefore by
// rank. An all-to-all sends the counts, then the rows. Rows arrive by expert,
// then by rank, then by row: the order on one rank with all rows. Without ep,
// slots are in that order already and nothing moves.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/workspace.h"

namespace atl::engine {

// One layer's dispatch of one micro-batch. Borrows its arrays of counts.
// Thread-compatible. Instantiated for float and double.
template <typename T>
class ExpertExchange {
 public:
  // Length of `received`; 0 without ep.
  static int64_t ReceivedCount(const ModelConfig& config,
                               const UnitSlice& slice) {
    return slice.ep_size > 1 ? config.expert_count + 1 : 0;
  }

  // `begins` [E + 1] is PlanDispatch's. `received` has ReceivedCount elements,
  // which ShareCounts writes. Both are in host memory.
  ExpertExchange(const ModelConfig& config, const UnitSlice& slice,
                 const int64_t* begins, int64_t* received);

  // Tells the other ranks how many rows come to each of their experts, and
  // learns the same. This rank receives at most `rows_max` (ExpertRowsMax). If
  // more come, latches INVALID_ARGUMENT and aborts the ep group: its
  // micro-batches differ in size, or experts have a capacity and sequences are
  // not of the model's length.
  void ShareCounts(Workspace<T>& work, int64_t rows_max) const;

  // Rows of this rank's e-th expert: their number and the first one.
  int64_t count(int64_t e) const { return begin(e + 1) - begin(e); }
  int64_t begin(int64_t e) const;

  // Dispatch writes `by_expert` [S, C] from `by_slot` [R K, C]; Return does the
  // reverse. Both do nothing without ep.
  void Dispatch(Workspace<T>& work, const T* by_slot, T* by_expert) const;
  void Return(Workspace<T>& work, const T* by_expert, T* by_slot) const;

 private:
  struct Rows {
    int64_t begin = 0;
    int64_t count = 0;
  };
  struct Parts {
    Rows from, to;
  };
  // The rows in [S, C] that rank `p` sends to this rank's e-th expert.
  Rows FindPlaces(int p, int64_t e) const {
    const int64_t* const at = received_ + e * size_ + p;
    return {at[0], at[1] - at[0]};
  }
  // The rows in [R K, C] for the e-th expert of rank `p`.
  Rows FindSlots(int p, int64_t e) const {
    const int64_t* const at = begins_ + p * experts_ + e;
    return {at[0], at[1] - at[0]};
  }
  // Sends from the parts' places in `from`, receives into those in `to`.
  void Move(Workspace<T>& work, const T* from, T* to,
            absl::FunctionRef<Parts(int, int64_t)> parts_of) const;

  const int size_, rank_;  // In the ep group.
  const int64_t experts_;  // On each rank.
  const int64_t channels_;
  const int64_t* begins_;
  // [experts, ranks], then the end: the first row of each part.
  int64_t* received_;
};

}  // namespace atl::engine
