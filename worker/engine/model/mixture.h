// The mixture of experts of a kMixtral: for each row the sum over its K experts
// of the router's weight times the expert's down(silu(gate(x)) up(x)).
// model_config.h says what the router's loss and an expert's capacity are.
//
// With tp the router is whole on each rank, which sees all rows and so makes
// the same choices; each expert is divided as a dense MLP is. With ep rows go
// to the ranks that have their experts and back (model/expert_exchange.h). An
// expert's capacity is one of each sequence, so that no other sequence decides
// what is passed by; with cp a rank learns from the others what of a sequence
// comes before its parts of it (model/expert_capacity.h).

#pragma once

#include <cstdint>
#include <memory>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {

// That of layer `layer`. Instantiated for float and double.
template <typename T>
std::unique_ptr<Mlp<T>> MakeMixture(const ModelConfig& config,
                                    const ParameterLayout& layout,
                                    const UnitSlice& slice, int64_t layer,
                                    Keep keep);

}  // namespace atl::engine
