// The mixture of experts of kMixtral. A row's output is the sum over its K
// experts of the router's weight times the expert's down(silu(gate(x)) up(x)).
// model_config.h defines the router's loss and the expert capacity.
//
// With tp each rank has the whole router and all rows, and so makes the same
// choices. Each expert is divided like a dense MLP. With ep, rows travel to the
// ranks of their experts and back (model/expert_exchange.h). Expert capacity is
// per sequence, so no other sequence decides which rows are dropped. With cp a
// rank learns the choices in the earlier parts of a sequence from other ranks
// (model/expert_capacity.h).

#ifndef WORKER_ENGINE_MODEL_MIXTURE_H_
#define WORKER_ENGINE_MODEL_MIXTURE_H_

#include <cstdint>
#include <memory>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {

// Makes the mixture of layer `layer`. Instantiated for float and double.
template <typename T>
std::unique_ptr<Mlp<T>> MakeMixture(const ModelConfig& config,
                                    const ParameterLayout& layout,
                                    const UnitSlice& slice, int64_t layer,
                                    Keep keep);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_MODEL_MIXTURE_H_
