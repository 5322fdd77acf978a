// What units do with the ranks that they share a model with. Each does nothing
// where the group is null, and after an error, which it leaves in the
// workspace.
//
// Rows: R of a micro-batch, of which the residual stream has R' = R / tp here
// (model/unit_slice.h). Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/workspace.h"

namespace atl::engine {

// What ranks exchange.
template <typename T>
constexpr collective::DataType ToDataType() {
  return sizeof(T) == sizeof(double) ? collective::DataType::kF64
                                     : collective::DataType::kF32;
}

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

// Starts to gather `mine` [R', C] of all tp ranks into `whole` [R, C]. Without
// tp the rows are `mine` itself, and `whole` is not used.
template <typename T>
GatheredRows<T> StartGatherRows(Workspace<T>& work, int64_t rows, const T* mine,
                                T* whole);
// The same, waited for.
template <typename T>
const T* GatherRows(Workspace<T>& work, int64_t rows, const T* mine, T* whole) {
  return StartGatherRows(work, rows, mine, whole).Wait(work);
}

// Where a product that tp ranks share puts its part of a sum, [R, C], which
// ReduceRows then brings to `mine` [R', C]: work.partial, or without tp `mine`.
template <typename T>
T* PartialRows(Workspace<T>& work, T* mine) {
  return work.groups.tp != nullptr ? work.partial.data : mine;
}
// mine [R', C] = this rank's rows of the sum over tp ranks of `partial` [R, C].
// Without tp they are the same and nothing happens.
template <typename T>
void ReduceRows(Workspace<T>& work, int64_t rows, const T* partial, T* mine);

// x [n] = its sum, or largest, over tp ranks.
template <typename T>
void ReduceOverTp(Workspace<T>& work, int64_t n, T* x,
                  collective::Reduction reduction);

}  // namespace atl::engine
