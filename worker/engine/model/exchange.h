// Exchanges between a unit and the ranks that share its model. A call does
// nothing if the group is null or after an error. Errors go to the workspace.
// R' = R / tp is the rank's share of the stream's R rows. Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/workspace.h"

namespace atl::engine {

// Rows that arrive. Movable.
template <typename T>
struct GatheredRows {
  const T* rows = nullptr;  // [R, C], after Wait.
  collective::Pending pending;

  const T* Wait(Workspace<T>& work) {
    work.Latch(pending.Wait());
    return rows;
  }
};

// Starts an all-gather of `mine` [R', C] over the tp ranks into `whole` [R, C].
// Without tp the result is `mine`, and `whole` is not used.
template <typename T>
GatheredRows<T> StartGatherRows(Workspace<T>& work, int64_t rows, const T* mine,
                                T* whole);
template <typename T>
const T* GatherRows(Workspace<T>& work, int64_t rows, const T* mine, T* whole) {
  return StartGatherRows(work, rows, mine, whole).Wait(work);
}

// Returns where a product that tp ranks share puts its part of a sum, [R, C]:
// work.partial, or `mine` [R', C] without tp. ReduceRows takes it from there.
template <typename T>
T* PartialRows(Workspace<T>& work, T* mine) {
  return work.groups.tp != nullptr ? work.partial.data : mine;
}
// mine [R', C] = this rank's rows of the sum of `partial` [R, C] over tp ranks.
// Without tp both are one buffer and nothing happens.
template <typename T>
void ReduceRows(Workspace<T>& work, int64_t rows, const T* partial, T* mine);

// x [n] = its sum or maximum over tp ranks.
template <typename T>
void ReduceOverTp(Workspace<T>& work, int64_t n, T* x,
                  collective::Reduction reduction);

}  // namespace atl::engine
