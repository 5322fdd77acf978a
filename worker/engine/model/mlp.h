// The second half of a block: what the MLP adds to the residual stream. Made by
// model/dense_mlp.h and model/mixture.h.
//
// With tp, x and dout are whole rows, the same on all ranks of a group. delta
// and dx are this rank's part of a sum that the caller reduces. Conventions are
// those of model/parts.h. Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// Router statistics of all layers for one micro-batch: the load-balancing loss
// multiplies sums over all layers and rows. Null without experts.
//
// A forward pass adds this rank's rows; tp ranks see the same rows and add the
// same. If ranks share a micro-batch, their driver sums counts and sums between
// its last forward and its first backward: over ranks with other tokens
// (kLossGroup of parallel/layout/mesh.h) and with other layers (pp). It sets
// `rows` to the group's tokens. Loss and summed gradients then equal those of
// one rank with all these sequences.
template <typename T>
struct RouterTotals {
  T* counts = nullptr;  // [E], choices of each expert
  T* sums = nullptr;    // [E], sums of its probabilities
  // The micro-batch's share of the step's loss. Backward reads it.
  T scale = 1;
  // Tokens that the totals cover if summed over ranks; 0: this rank's rows.
  int64_t rows = 0;
};

enum class Keep {
  kAll,
  // Inputs of parts, outputs of products and of attention. Backward recomputes
  // norms and SwiGLU or GELU, with the same bits.
  kProducts,
};

template <typename T>
class Mlp {
 public:
  virtual ~Mlp() = default;

  // Takes from `saved` what the backward pass needs, or measures it.
  virtual void TakeSaved(int64_t rows, Arena& saved) const = 0;

  // Writes `delta` [R, C] from `x` [R, C], without the last map's bias, and
  // adds to `totals`. `saved` holds what TakeSaved takes. This rank has
  // `sequence_length` rows of each sequence.
  virtual void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
                       int64_t sequence_length, const T* x, Arena& saved,
                       T* delta, const RouterTotals<T>& totals) const = 0;
  // [C], or null.
  virtual const T* bias(const T* parameters) const = 0;

  // Writes dx [R, C] from `dout` [R, C] and totals of all layers; uses up
  // `saved`.
  virtual void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                        const T* x, Arena& saved, const T* dout,
                        const RouterTotals<T>& totals, T* dx, T* gradients,
                        bool accumulate) const = 0;
};

}  // namespace atl::engine
