// A mixture of experts. A part of BasicOps, with its rules (ops.h). Letters as
// in RouteShape.

#pragma once

#include <cstdint>

#include "worker/engine/ops/shapes.h"

namespace atl::engine {

template <typename T>
class MixtureOps {
 public:
  virtual ~MixtureOps() = default;

  // probabilities [R, E] = softmax(logits). experts [R, K] = the K likeliest in
  // falling order; on ties the lower index first. weights [R, K] = their
  // probabilities divided by the sum of these K (K = 1: exactly 1).
  virtual void Route(const RouteShape& shape, const T* logits, T* probabilities,
                     int32_t* experts, T* weights) = 0;
  // dlogits [R, E] from dweights [R, K] and from `balance` [E], the gradient of
  // each expert's probability in every row.
  virtual void RouteBackward(const RouteShape& shape, const T* probabilities,
                             const int32_t* experts, const T* weights,
                             const T* dweights, const T* balance,
                             T* dlogits) = 0;
  // Adds to counts [E] how often each expert occurs in `experts`, and to sums
  // [E] each expert's probabilities.
  virtual void AddRouteTotals(const RouteShape& shape, const T* probabilities,
                              const int32_t* experts, T* counts, T* sums) = 0;
  // counts [N, E]: how often each group chose each expert.
  virtual void CountChoices(const RouteShape& shape, const int32_t* experts,
                            T* counts) = 0;
  // Sorts the choices of all rows by expert, then by row, into slots. An expert
  // takes the first `capacity` choices of each group and drops the others.
  // `before` [N, E] counts choices that precede the group and use up its
  // capacity; null means none.
  //
  //   slots [R, K]    a choice's slot, or -1 if it is dropped
  //   sources [R K]   the row of each slot
  //   begins [E + 1]  expert e has the slots [begins[e], begins[e + 1]). Host
  //                   memory, so the call waits.
  virtual void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                            const T* before, int32_t* slots, int32_t* sources,
                            int64_t* begins) = 0;
  // out[i] = x[sources[i]].
  virtual void GatherRows(int64_t count, int64_t channels,
                          const int32_t* sources, const T* x, T* out) = 0;
  // out[r] = sum over j, rising, of weights[r, j] y[slots[r, j]], without slots
  // that are -1. Null `weights` are all 1.
  virtual void CombineRows(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const T* weights, const T* y,
                           T* out) = 0;
  // dy[slots[r, j]] = weights[r, j] dout[r]. dweights[r, j] = dot product of
  // dout[r] and y[slots[r, j]], or 0 if the slot is -1. dy may be y itself.
  virtual void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                   const int32_t* slots, const T* weights,
                                   const T* y, const T* dout, T* dy,
                                   T* dweights) = 0;
};

}  // namespace atl::engine
