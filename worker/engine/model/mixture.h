// The mixture of experts of kMixtral. A row's output is the sum over its K
// experts of the router's weight times the expert's down(silu(gate(x)) up(x)).
// model_config.h defines the router's loss and the expert capacity.
//
// With tp each rank has the whole router and all rows, so all make the same
// choices; experts are divided like a dense MLP. With ep, rows travel to their
// experts (model/expert_exchange.h). With cp and a capacity, ranks exchange
// choices of their parts of a sequence (model/expert_capacity.h).

#pragma once

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
