// How rows come to the experts of other ranks, and back.
//
// A rank has its rows by slot, which is by expert (Ops::PlanDispatch); it sends
// each rank of the ep group those for the experts there, an all-to-all of
// uneven parts, each of which lands at its place: by expert, then by rank, then
// by row, which is the order that one rank with all the rows would have. How
// many come is told first. Without ep slots are in that order already and
// nothing moves.
//
// One object is one layer's dispatch of one micro-batch; it borrows the arrays
// that say how many. Thread-compatible.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/workspace.h"

namespace atl::engine {

// Instantiated for float and double.
template <typename T>
class ExpertExchange {
 public:
  // Numbers that `received` has room for; 0 without ep.
  static int64_t ReceivedCount(const ModelConfig& config,
                               const UnitSlice& slice) {
    return slice.ep_size > 1 ? config.expert_count + 1 : 0;
  }

  // `begins` [E + 1] is PlanDispatch's; `received` holds ReceivedCount, written
  // by ShareCounts. Both are the host's.
  ExpertExchange(const ModelConfig& config, const UnitSlice& slice,
                 const int64_t* begins, int64_t* received);

  // Tells the others how many rows come to each of their experts, and learns
  // the same, `rows_max` at most (ExpertRowsMax).
  //
  // Latches INVALID_ARGUMENT, and ends the world: more come than that, so that
  // ranks of the ep group have micro-batches of different sizes, or, where an
  // expert has a capacity, of sequences that are not of the model's length.
  void ShareCounts(Workspace<T>& work, int64_t rows_max) const;

  // Rows of the e-th of this rank's experts, and the first of them.
  int64_t count(int64_t e) const { return begin(e + 1) - begin(e); }
  int64_t begin(int64_t e) const;

  // to [S, C], by expert, from `by_slot` [R K, C]; and the reverse. Nothing
  // without ep.
  void Dispatch(Workspace<T>& work, const T* by_slot, T* by_expert) const;
  void Return(Workspace<T>& work, const T* by_expert, T* by_slot) const;

 private:
  struct Rows {
    int64_t begin = 0;
    int64_t count = 0;
  };
  // What goes to a rank, and what comes from it.
  struct Parts {
    Rows from, to;
  };
  // Where rows from rank `p` for the e-th own expert lie in [S, C].
  Rows FindPlaces(int p, int64_t e) const {
    const int64_t* const at = received_ + e * size_ + p;
    return {at[0], at[1] - at[0]};
  }
  // Where rows for the e-th expert of rank `p` lie in [R K, C].
  Rows FindSlots(int p, int64_t e) const {
    const int64_t* const at = begins_ + p * experts_ + e;
    return {at[0], at[1] - at[0]};
  }
  // Rows of each (rank, expert) from their place in `from` to that in `to`.
  void Move(Workspace<T>& work, const T* from, T* to,
            absl::FunctionRef<Parts(int, int64_t)> parts_of) const;

  const int size_, rank_;  // Of the ep group.
  const int64_t experts_;  // That each rank has.
  const int64_t channels_;
  const int64_t* begins_;
  // [experts, ranks], and the end: the first row of each part.
  int64_t* received_;
};

}  // namespace atl::engine
