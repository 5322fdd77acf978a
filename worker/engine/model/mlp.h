// The second half of a block: what it adds to the residual stream, from the
// normed stream.
//
// model/dense_mlp.h and model/mixture.h make them.
//
// With tp, x and dout are whole rows and the same on all ranks of a group;
// delta and dx are this rank's part of a sum over them, which its caller makes.
//
// Conventions as in model/parts.h. Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// What routers of all layers did with one micro-batch: it travels with the
// activations, because the loss that balances experts multiplies sums over all
// layers and rows. Null pointers in models without experts.
//
// A forward adds what this rank's rows did (tp ranks, who see the same rows,
// add the same). Where several ranks have parts of a micro-batch, their driver,
// once all forwards and no backward of it have run, sums counts and sums over
// the ranks that read other tokens (kLossGroup of parallel/mesh.h) and those
// that have other layers (pp), and sets `rows` to the tokens of that group. The
// loss is then that of one rank with all these sequences, and the gradients of
// the ranks' own rows add up to its gradient.
template <typename T>
struct RouterTotals {
  T* counts = nullptr;  // [E], choices of each expert
  T* sums = nullptr;    // [E], its probabilities
  // The micro-batch's share of the step's loss; backward reads it.
  T scale = 1;
  // Tokens behind the totals, where they were summed over ranks; 0: they are of
  // this rank's rows alone.
  int64_t rows = 0;
};

// What a block's saved buffer keeps for the backward pass.
enum class Keep {
  kAll,
  // Inputs of parts, outputs of products and of attention. What is cheap is
  // made again, to the same bits: norms, and SwiGLU or GELU.
  kProducts,
};

template <typename T>
class Mlp {
 public:
  virtual ~Mlp() = default;

  // Takes what the backward pass needs of `rows` rows; measures if the arena
  // does.
  virtual void TakeSaved(int64_t rows, Arena& saved) const = 0;

  // `delta` [R, C] from `x` [R, C], without the last map's bias; adds to
  // `totals`. `saved` holds what TakeSaved takes. Rows are of sequences of
  // which this rank has `sequence_length` each.
  virtual void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
                       int64_t sequence_length, const T* x, Arena& saved,
                       T* delta, const RouterTotals<T>& totals) const = 0;
  // The last map's bias [C], or null.
  virtual const T* bias(const T* parameters) const = 0;

  // dx [R, C] from `dout` [R, C]. Uses `saved` up. `totals` are of all layers.
  virtual void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                        const T* x, Arena& saved, const T* dout,
                        const RouterTotals<T>& totals, T* dx, T* gradients,
                        bool accumulate) const = 0;
};

}  // namespace atl::engine
