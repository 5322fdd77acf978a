// The second half of a block: what the MLP adds to the residual stream.
//
// With tp, x and dout are whole rows, the same on all ranks of a group. delta
// and dx are this rank's part of a sum that the caller reduces. Conventions are
// those of model/parts.h. Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>

#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"
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

// The MLP of layer `layer` without experts: kLlama's is down(silu(gate(x))
// up(x)), kGpt2's is c_proj(gelu(c_fc(x))). With tp a rank has F of the inner
// channels: it takes whole rows and returns its part of a sum. Instantiated for
// float and double.
template <typename T>
std::unique_ptr<Mlp<T>> MakeDenseMlp(const ModelConfig& config,
                                     const ParameterLayout& layout,
                                     const UnitSlice& slice, int64_t layer,
                                     Keep keep);

// The mixture of experts of kMixtral's layer `layer`. A row's output is the sum
// over its K experts of the router's weight times the expert's down(silu(
// gate(x)) up(x)). model_config.h defines the router's loss and the expert
// capacity. Instantiated for float and double.
//
// With tp each rank has the whole router and all rows, so all make the same
// choices; experts are divided like a dense MLP. With ep, rows travel to their
// experts (model/expert_exchange.h). With cp and a capacity, ranks exchange
// choices of their parts of a sequence.
template <typename T>
std::unique_ptr<Mlp<T>> MakeMixture(const ModelConfig& config,
                                    const ParameterLayout& layout,
                                    const UnitSlice& slice, int64_t layer,
                                    Keep keep);

}  // namespace atl::engine
