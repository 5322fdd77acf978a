// The operations of a mixture of experts. A part of BasicOps (ops.h), whose
// rules hold here.

#ifndef WORKER_ENGINE_OPS_MIXTURE_OPS_H_
#define WORKER_ENGINE_OPS_MIXTURE_OPS_H_

#include <cstdint>

#include "worker/engine/ops/shapes.h"

namespace atl::engine {

template <typename T>
class MixtureOps {
 public:
  virtual ~MixtureOps() = default;

  // --- Mixture of experts: letters at RouteShape ---------------------------

  // probabilities [R, E] = softmax(logits); experts [R, K]: the K likeliest,
  // falling, of equal ones the lower first; weights [R, K]: their
  // probabilities over the sum of them (K = 1: exactly 1).
  virtual void Route(const RouteShape& shape, const T* logits, T* probabilities,
                     int32_t* experts, T* weights) = 0;
  // dlogits [R, E] from dweights [R, K] and from `balance` [E], the gradient of
  // each expert's probability in every row.
  virtual void RouteBackward(const RouteShape& shape, const T* probabilities,
                             const int32_t* experts, const T* weights,
                             const T* dweights, const T* balance,
                             T* dlogits) = 0;
  // Adds to counts [E] how often each expert is among `experts`, and to sums
  // [E] its probabilities.
  virtual void AddRouteTotals(const RouteShape& shape, const T* probabilities,
                              const int32_t* experts, T* counts, T* sums) = 0;
  // counts [N, E]: how often each expert is among the choices of each group.
  virtual void CountChoices(const RouteShape& shape, const int32_t* experts,
                            T* counts) = 0;
  // Sorts the choices of all rows by expert, then by row, into slots. Of each
  // group and expert the first `capacity` are kept, less what `before` [N, E]
  // says was chosen before the group begins; null: nothing. slots [R, K]: a
  // choice's slot, or -1; sources [R K]: the row of each slot; begins [E + 1]
  // (host memory, so the call waits): expert e has slots [begins[e],
  // begins[e + 1]).
  virtual void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                            const T* before, int32_t* slots, int32_t* sources,
                            int64_t* begins) = 0;
  // out[i] = x[sources[i]].
  virtual void GatherRows(int64_t count, int64_t channels,
                          const int32_t* sources, const T* x, T* out) = 0;
  // out[r] = sum over j, rising, of weights[r, j] y[slots[r, j]] without the
  // slots that are -1; weights that are null are 1.
  virtual void CombineRows(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const T* weights, const T* y,
                           T* out) = 0;
  // dy[slots[r, j]] = weights[r, j] dout[r]; dweights[r, j] = dout[r] .
  // y[slots[r, j]], or 0 if the slot is -1. dy may be y itself.
  virtual void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                   const int32_t* slots, const T* weights,
                                   const T* y, const T* dout, T* dy,
                                   T* dweights) = 0;
};

}  // namespace atl::engine

#endif  // WORKER_ENGINE_OPS_MIXTURE_OPS_H_
